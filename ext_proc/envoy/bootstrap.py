"""A whole Envoy for one isogloss.yaml: a listener that asks us, the pods it may send to, and our workers."""

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import betterproto2
import msgspec
from envoy_data_plane.envoy.config.bootstrap.v3 import Admin, Bootstrap, BootstrapStaticResources
from envoy_data_plane.envoy.config.core.v3 import Node as Proxy

from ext_proc.config import Config
from ext_proc.envoy import clusters, listener
from ext_proc.envoy.common import address
from ext_proc.errors import ConfigError
from ext_proc.yamlfile import decode
from policy.types import Node

LOOPBACK = "127.0.0.1"
# Both of betterproto2's casings split consecutive_5xx at the 5; fields already have Envoy's own names.
_AS_IT_IS = cast(betterproto2.Casing, str)


def render(config: Config, access_log: Path | None = None) -> str:
    """Envoy's bootstrap as YAML. Raises ConfigError when the fleet cannot be read or Envoy could not dial it."""
    message = bootstrap(config, _nodes(config), access_log)
    plain = message.to_dict(casing=_AS_IT_IS)
    return msgspec.yaml.encode(plain).decode()


def bootstrap(config: Config, nodes: Iterable[Node], access_log: Path | None = None) -> Bootstrap:
    """Envoy's bootstrap, typed. *access_log*: where Envoy writes a JSON line for each request."""
    return Bootstrap(
        node=Proxy(id="isogloss", cluster="isogloss"),
        # Loopback only: the admin port can stop Envoy and shows every header it has seen.
        admin=Admin(address=address(LOOPBACK, config.envoy.admin_port)),
        static_resources=BootstrapStaticResources(
            listeners=[listener.listener(config, access_log)],
            clusters=[
                clusters.pods(nodes, only_chosen=bool(config.rules.residency)),
                clusters.workers(config),
            ],
        ),
    )


def _nodes(config: Config) -> tuple[Node, ...]:
    if config.fleet.file is None:
        return config.fleet.nodes
    try:
        text = config.fleet.file.read_bytes()
    except OSError as exc:
        raise ConfigError(f"fleet.file: cannot read {config.fleet.file}: {exc.strerror}") from exc
    nodes: tuple[Node, ...] = decode(text, tuple[Node, ...])
    return nodes
