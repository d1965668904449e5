"""A wrong configuration says where, what, and what was meant."""

from pathlib import Path

import pytest

from ext_proc import config
from ext_proc.errors import ConfigError


def test_an_empty_configuration_is_the_defaults():
    assert config.parse(b"") == config.Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("server: {prot: 3}", "server.prot: unknown key; did you mean 'port'?"),
        ("severs: {}", "severs: unknown key; did you mean 'server'?"),
        ("zzz: {}", "zzz: unknown key; known: bundle, encoder, envoy, fleet, places, rules, server, sessions"),
        ("server: {port: 99999999}", "server.port: Expected `int` <= 65535 (found 99999999)"),
        (
            "server: {workers: 2}",
            "server.health_port (9003) and server.port meet at 9003: each needs 2 ports side by side",
        ),
        ("server: {limits: {body_bytes: 1}}", "server.limits.body_bytes: Expected `int` >= 1024 (found 1)"),
        ("server: {paths: {my/api: {text: /a}}}", "server.paths: 'my/api' is no path: as in /my/api"),
        ("server: {paths: {'/a?b': {text: /a}}}", "server.paths: '/a?b' is no path: as in /my/api"),
        ("server: {paths: {/a: {text: payload.q}}}", "'payload.q' is no JSON pointer: it begins with '/'"),
        ("server: {paths: {/a: {text: ''}}}", "'' is no JSON pointer: it begins with '/'"),
        ("server: {paths: {/a: {text: /a, model: /m~x}}}", "'/m~x' is no JSON pointer: '~' in a key is written ~0"),
        ("server: {paths: {/a: {text: /a/100}}}", "'/a/100': '100' is no element we read: a list is read up to 99"),
        ("server: {paths: {/a: {text: /a/-}}}", "'/a/-': '-' is no element we read"),
        ("server: {paths: {/a: {text: '/a\"b'}}}", "a key with quotes, backslashes or control characters is not read"),
        ("server: {paths: {/a: {model: /a}}}", "server.paths./a: Object missing required field `text`"),
        ("server: {paths: {/a: {txt: /a}}}", "server.paths./a.txt: unknown key; did you mean 'text'?"),
        ("server: {limits: {body: 1}}", "server.limits.body: unknown key; did you mean 'body_bytes'?"),
        ("rules: {watermarks: {low: .9, high: .8}}", "watermarks.low (0.9) must be under watermarks.high (0.8)"),
        ("rules: {pools: {a: {intnts: [x]}}}", "rules.pools.a.intnts: unknown key; did you mean 'intents'?"),
        ("rules: {pools: {a: {}, b: {intents: x}}}", "rules.pools.b.intents: Expected `array`, got `str` (found 'x')"),
        ("bundle: 3", "bundle: Expected a path, got 3"),
        ("rules: {pools: {a: {intents: [x]}, b: {intents: [x]}}}", "intent 'x' is in pool 'a' and in 'b'"),
        ("fleet: {nodes: [{address: '1.2.3.4:5', modls: [a]}]}", "modls: unknown key; did you mean 'models'?"),
        ("fleet: {nodes: [{address: '1.2.3.4:5', pool: \"a\\r\\nb\"}]}", "fleet.nodes[0].pool"),
        ("places: {networks: [{cidr: 10.0.0.1/8}]}", "10.0.0.1/8 has host bits set"),
        ("places: {trusted_proxies: [x]}", "'x' does not appear to be an IPv4 or IPv6 network"),
        ("places: {trusted_proxies: [10.0.0.0/8], trusted_hops: 1}", "give trusted_hops or trusted_proxies, not both"),
        ("sessions: {store: redis}", "sessions.secret"),
        ("sessions: {store: mongo}", "sessions.store: Invalid enum value 'mongo'"),
        ("server: {port: 65535, workers: 2}", "server.port (65535): there is no port 65536"),
        ("server: {socket_mode: 660}", "server.socket_mode"),
        (f"server: {{socket: /{'x' * 107}}}", "at most 107 bytes"),
        ("server: {tls: {certificate: c}}", "server.tls"),
        ("envoy: {tls: {ca: c}}", "envoy.tls: the service itself has no TLS"),
        ("envoy: {tls: {ca: c, key: k}}", "certificate and key go together"),
        ("envoy: {admin_port: 10000}", "envoy.port and envoy.admin_port are the same"),
        ("sessions: {ttl_s: 100, max_age_s: 99}", "sessions.max_age_s (99) must not be under ttl_s (100)"),
        ("sessions: {entries: 5}", "sessions.entries: unknown key"),
        ("rules: {residency: [{stay: []}]}", "rules.residency[0].stay: Expected `array` of length >= 1"),
        (
            "rules: {residency: [{stay: [UK]}]}",
            "residency.stay: 'UK' is no country (ISO 3166-1, DE), no bloc (EU, EEA)",
        ),
        ("rules: {residency: [{stay: [EU], client: [DE]}]}", "client: unknown key; did you mean 'clients'?"),
        ("rules: {residency: [{stay: [EU], tenants: [a]}]}", "set sessions.tenant_header to the header in which"),
        ("fleet: {nodes: [{address: '1.2.3.4:5', country: UK}]}", "country 'UK' of node 1.2.3.4:5 is none of ISO"),
        ("server: {deadline_ms: 300}", "envoy.message_timeout_ms (200) must be above server.deadline_ms (300)"),
        ("- a", "configuration: Expected `object`, got `array`"),
        ("a: [", "not valid YAML"),
        ("\x00", "not valid YAML"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(text, says):
    with pytest.raises(ConfigError) as caught:
        config.parse(text.encode())
    assert says in str(caught.value)


def test_paths_are_relative_to_the_file(tmp_path):
    path = tmp_path / "isogloss.yaml"
    path.write_text("bundle: b\nencoder: {path: e}\nplaces: {databases: [g.mmdb, /abs.mmdb]}\nfleet: {file: f.yaml}")
    read = config.load(path)
    assert read.bundle == tmp_path / "b"
    assert read.encoder.path == tmp_path / "e"
    assert read.places.databases == (tmp_path / "g.mmdb", Path("/abs.mmdb"))
    assert read.fleet.file == tmp_path / "f.yaml"


def test_a_file_that_is_not_there_is_an_error_in_one_line(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        config.load(tmp_path / "none.yaml")


def test_every_size_follows_from_the_one_limit():
    limits = config.Limits(body_bytes=4 * config.MIB)
    assert limits.message_bytes > limits.body_bytes


def test_what_is_seldom_meant_is_a_warning():
    text = b"server: {workers: 2, health_port: 9010, tls: {certificate: c, key: k}}"
    found = config.warnings(config.parse(text))
    assert [line.split(" ")[0] for line in found] == ["sessions.store", "server.tls"]
    assert config.warnings(config.parse(b"")) == []


def test_workers_sockets_and_ports_follow_from_the_first():
    read = config.parse(b"server: {workers: 3, socket: run/iso.sock, health_port: 9100}", base=Path("/etc/isogloss"))
    assert [str(read.server.socket_of(worker)) for worker in range(3)] == [
        "/etc/isogloss/run/iso.sock",
        "/etc/isogloss/run/iso.sock.1",
        "/etc/isogloss/run/iso.sock.2",
    ]
    assert read.server.ports() == {"health_port": range(9100, 9103), "metrics_port": range(9090, 9093)}


def test_nodes_that_can_never_answer_a_residency_rule_are_named():
    nodes = "fleet: {nodes: [{address: '1.2.3.4:5'}, {address: '1.2.3.5:5', country: DE}]}"
    read = config.parse(f"{nodes}\nrules: {{residency: [{{stay: [EU]}}]}}".encode())
    assert "fleet.nodes without a country meet no rule of rules.residency: 1.2.3.4:5" in config.warnings(read)


def test_a_residency_rule_by_place_without_anything_that_knows_places_is_warned_of():
    rule = "rules: {residency: [{clients: [EU], stay: [EU]}]}"
    asks = "rules.residency asks where clients are, and places has nothing to tell: it concerns all requests"
    assert asks in config.warnings(config.parse(rule.encode()))
    assert asks not in config.warnings(config.parse(f"{rule}\nplaces: {{locality: true}}".encode()))
