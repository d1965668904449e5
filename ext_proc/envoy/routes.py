"""The routes: everything to the pods, and the decision back to the client."""

from typing import Final

from envoy_data_plane.envoy.config.core.v3 import (
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
)
from envoy_data_plane.envoy.config.route.v3 import (
    HeaderMatcher,
    RetryPolicy,
    RetryPolicyRetryHostPredicate,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.retry.host.previous_hosts.v3 import PreviousHostsPredicate
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher
from envoy_data_plane.google.protobuf import Any

from ext_proc import names
from ext_proc.config import Config
from ext_proc.envoy.common import NEVER, PODS, overwrite

COOKIE_SAFE: Final = HeaderMatcher(
    name=names.SESSION, string_match=StringMatcher(safe_regex=RegexMatcher(regex="[A-Za-z0-9._~-]+"))
)
"""Only a session id that cannot break out of the cookie; without one there is nothing to set."""
TRAILERS: Final = HeaderMatcher(name=names.TRAILERS, present_match=True)
"""With retries Envoy would give the pod a body twice that has trailers behind it (`Exchange` marks those)."""


def routes(config: Config) -> RouteConfiguration:
    """One host for every name; the decision goes back as response headers, without a message to us."""
    found = _both(config, "pods", retries=True)
    if config.envoy.mode == "duplex":
        found = [*_both(config, "pods-once", TRAILERS, retries=False), *found]
    return RouteConfiguration(
        name="pods",
        virtual_hosts=[
            VirtualHost(
                name="pods",
                domains=["*"],
                routes=found,
                response_headers_to_add=[
                    *(overwrite(name, f"%REQ({name})%") for name in (*names.DECISION_HEADERS, names.SESSION)),
                    overwrite(names.NODE, "%UPSTREAM_REMOTE_ADDRESS%"),
                ],
            )
        ],
    )


def _both(config: Config, name: str, *when: HeaderMatcher, retries: bool) -> list[Route]:
    """With a cookie, where there is one to set, and without."""
    plain, cookie = _to_pods(config, name, *when, retries=retries), config.sessions.cookie
    if cookie is None:
        return [plain]
    with_cookie = _to_pods(config, f"{name}-with-cookie", *when, COOKIE_SAFE, retries=retries)
    return [_with_cookie(with_cookie, cookie, config.sessions.ttl_s), plain]


def _to_pods(config: Config, name: str, *when: HeaderMatcher, retries: bool) -> Route:
    action = RouteAction(cluster=PODS, timeout=NEVER, retry_policy=_next_node(config) if retries else None)
    return Route(name=name, match=RouteMatch(prefix="/", headers=list(when)), route=action)


def _next_node(config: Config) -> RetryPolicy:
    """The decision's next node when a connection could not be made: nothing was sent, so nothing is done twice.

    override_host looks at no host's health, so this, not the outlier detection, is what passes a dead node by.
    Retrying on more would be wrong in duplex, where Envoy may send a body twice (envoy#36119).
    """
    return RetryPolicy(
        retry_on="connect-failure",
        # One more than there are nodes to go to: with a single one named, Envoy's first retry goes to that very node.
        num_retries=1 + max(1, config.rules.fallbacks),
        retry_host_predicate=[
            RetryPolicyRetryHostPredicate(
                name="envoy.retry_host_predicates.previous_hosts",
                typed_config=Any.pack(PreviousHostsPredicate()),
            )
        ],
        host_selection_retry_max_attempts=3,
    )


def _with_cookie(route: Route, cookie: str, ttl_s: float) -> Route:
    value = f"{cookie}=%REQ({names.SESSION})%; Path=/; Max-Age={ttl_s:.0f}; HttpOnly; SameSite=Lax"
    route.response_headers_to_add = [
        HeaderValueOption(
            header=HeaderValue(key="set-cookie", value=value),
            append_action=HeaderValueOptionHeaderAppendAction.APPEND_IF_EXISTS_OR_ADD,
        )
    ]
    return route
