"""The routes: everything to the pods, and the decision back to the client."""

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

_COOKIE_SAFE = "[A-Za-z0-9._~-]+"


def routes(config: Config) -> RouteConfiguration:
    """One host for every name; the decision goes back as response headers, without a message to us."""
    cookie = config.sessions.cookie
    found = [_to_pods(config)]
    if cookie is not None:
        found.insert(0, _with_cookie(_to_pods(config), cookie, config.sessions.ttl_s))
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


def _to_pods(config: Config) -> Route:
    return Route(
        name="pods",
        match=RouteMatch(prefix="/"),
        route=RouteAction(cluster=PODS, timeout=NEVER, retry_policy=_next_node(config)),
    )


def _next_node(config: Config) -> RetryPolicy:
    """The decision's next node when a connection could not be made: nothing was sent, so nothing is done twice.

    override_host looks at no host's health, so this, not the outlier detection, is what passes a dead node by.
    Retrying on more would be wrong in duplex, where Envoy may send a body twice (envoy#36119).
    """
    return RetryPolicy(
        retry_on="connect-failure",
        num_retries=max(1, config.rules.fallbacks),
        retry_host_predicate=[
            RetryPolicyRetryHostPredicate(
                name="envoy.retry_host_predicates.previous_hosts",
                typed_config=Any.pack(PreviousHostsPredicate()),
            )
        ],
        host_selection_retry_max_attempts=3,
    )


def _with_cookie(route: Route, cookie: str, ttl_s: float) -> Route:
    """Only for a session id that cannot break out of the cookie; without one there is nothing to set."""
    route.name = "pods-with-cookie"
    route.match = RouteMatch(
        prefix="/",
        headers=[
            HeaderMatcher(name=names.SESSION, string_match=StringMatcher(safe_regex=RegexMatcher(regex=_COOKIE_SAFE)))
        ],
    )
    value = f"{cookie}=%REQ({names.SESSION})%; Path=/; Max-Age={ttl_s:.0f}; HttpOnly; SameSite=Lax"
    route.response_headers_to_add = [
        HeaderValueOption(
            header=HeaderValue(key="set-cookie", value=value),
            append_action=HeaderValueOptionHeaderAppendAction.APPEND_IF_EXISTS_OR_ADD,
        )
    ]
    return route
