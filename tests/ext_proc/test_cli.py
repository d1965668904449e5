"""The commands, as an operator meets them."""

import json
import re
import textwrap
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from ext_proc import cli, names

CONFIG = """
server: {deadline_ms: 5000}
envoy: {message_timeout_ms: 6000}
places:
  networks: [{cidr: 10.1.0.0/16, region: us-east}]
fleet:
  nodes:
    - {address: "127.0.0.1:9", pool: code, models: [coder], region: eu-west, latitude: 53.3, longitude: -6.2}
    - {address: "127.0.0.2:9", pool: general, models: [talker], region: eu-west, latitude: 53.3, longitude: -6.2}
    - {address: "127.0.0.3:9", pool: general, models: [talker], region: us-east, latitude: 39.0, longitude: -77.5}
rules:
  pools:
    code: {model: coder, intents: [coding, math]}
    general: {model: talker}
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "isogloss.yaml"
    path.write_text(CONFIG)
    return str(path)


def test_check_says_good_or_what_is_wrong(config, tmp_path, capsys):
    assert cli.main(["check", "--config", config]) == 0
    assert capsys.readouterr().out.endswith("isogloss.yaml: good\n")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("server: {prot: 1}")
    assert cli.main(["check", "--config", str(wrong)]) == 1
    assert capsys.readouterr().err == "isogloss: server.prot: unknown key; did you mean 'port'?\n"
    assert cli.main(["check", "--config", str(tmp_path / "none.yaml")]) == 1


def test_check_finds_all_the_service_would_not_start_with(tmp_path, capsys):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "places: {databases: [none.mmdb]}\nbundle: nowhere\nfleet: {nodes: [{address: 'localhost:8000'}]}\n"
    )
    assert cli.main(["check", "--config", str(wrong)]) == 1
    said = capsys.readouterr().err
    for word in ("none.mmdb", "nowhere", "localhost:8000"):
        assert word in said


@pytest.mark.parametrize(
    "field",
    ["latitude: 530", "longitude: -181", "continent: Europe", "qps_limit: 0", "qps_limit: .nan", "context_length: 0"],
)
def test_a_node_out_of_range_is_named(tmp_path, capsys, field):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(f"fleet: {{nodes: [{{address: '10.0.0.1:8000', {field}}}]}}")
    assert cli.main(["check", "--config", str(wrong)]) == 1
    assert f"fleet.nodes[0].{field.split(':')[0]}" in capsys.readouterr().err


def test_an_intent_the_bundle_does_not_have_is_a_warning(tmp_path, capsys):
    odd = tmp_path / "odd.yaml"
    odd.write_text("rules: {pools: {code: {intents: [codding]}}}")
    assert cli.main(["check", "--config", str(odd)]) == 0
    assert "no intent 'codding'; it has business, coding" in capsys.readouterr().err


def test_explain_shows_the_decision_with_its_points_and_reasons(config, capsys):
    assert cli.main(["explain", "--config", config, "--prompt", "Write a Rust function that sorts a vector."]) == 0
    out = capsys.readouterr().out
    assert "→ 127.0.0.1:9" in out
    assert "model coder" in out
    assert "because intent coding" in out
    assert "request rate" in out


def test_explain_reads_address_headers_and_a_body_from_a_file(config, tmp_path, capsys):
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"model": "talker", "messages": [{"role": "user", "content": "Tell me a joke."}]}))
    arguments = ["explain", "--config", config, "--body", str(body), "--ip", "10.1.2.3", "--json"]
    assert cli.main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["features"]["place"]["region"] == "us-east"
    assert told["answer"]["headers"][names.ENDPOINT] == "127.0.0.3:9"
    assert cli.main([*arguments, "--header", "x-route-hint=region=eu-west"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["answer"]["headers"][names.ENDPOINT] == "127.0.0.2:9"
    assert "joke" not in json.dumps(told)


def test_explain_shows_a_refusal_too(config, capsys):
    assert cli.main(["explain", "--config", config, "--prompt", "hi", "--model", "nope"]) == 0
    assert "answered by us: 404 unknown-model" in capsys.readouterr().out


def test_explain_shows_where_a_request_must_stay_and_why(tmp_path, capsys):
    path = tmp_path / "eu.yaml"
    path.write_text("""
server: {deadline_ms: 5000}
envoy: {message_timeout_ms: 6000}
places: {networks: [{cidr: 10.1.0.0/16, country: FR}, {cidr: 10.2.0.0/16, country: US}]}
rules: {residency: [{clients: [EU], stay: [EU]}]}
fleet: {nodes: [{address: "127.0.0.1:9", country: DE}, {address: "127.0.0.2:9", country: US}]}
""")

    def explained(*more: str) -> str:
        assert cli.main(["explain", "--config", str(path), "--prompt", "hi", *more]) == 0
        return capsys.readouterr().out

    french, american = explained("--ip", "10.1.0.1"), explained("--ip", "10.2.0.1")
    assert "FR, EU (by network table)" in french
    assert "dropped by residency: 127.0.0.2:9" in french
    assert "because must stay in EU" in french
    assert "must stay" not in american
    assert "must stay in EU" in explained()  # nobody knows where that client is
    refused = explained("--ip", "10.1.0.1", "--header", "x-route-hint=node=127.0.0.2:9;require")
    assert "answered by us: 503 residency" in refused
    assert "This request must stay in EU (data residency)" in refused


def test_explain_prints_brackets_as_they_are(config, tmp_path, capsys):
    assert cli.main(["explain", "--config", config, "--prompt", "hi", "--model", "[/b][red]"]) == 0
    assert "`[/b][red]` does not exist" in " ".join(capsys.readouterr().out.split())
    path = tmp_path / "six.yaml"
    path.write_text('fleet: {nodes: [{address: "[fd00::1]:9"}]}\n')
    assert cli.main(["explain", "--config", str(path), "--prompt", "hi"]) == 0
    assert "→ [fd00::1]:9 (pool general" in capsys.readouterr().out


def test_explain_wants_name_equals_value(config, capsys):
    assert cli.main(["explain", "--config", config, "--prompt", "hi", "--header", "oops"]) == 1
    assert "expected NAME=VALUE" in capsys.readouterr().err


def test_the_bootstrap_is_one_envoy_accepts(config, capsys):
    assert cli.main(["envoy", "bootstrap", "--config", config]) == 0
    assert "override_host" in capsys.readouterr().out
    assert cli.main(["envoy", "validate", "--config", config]) == 0


def test_fit_writes_a_bundle_the_service_can_use(config, tmp_path, capsys):
    seeds = tmp_path / "seeds.jsonl"
    lines = [("sums", "What is {} plus {}?"), ("greetings", "Hello my friend number {} of {}, how are you?")]
    seeds.write_text(
        "".join(json.dumps({"text": t.format(i, i + 1), "intent": name}) + "\n" for name, t in lines for i in range(12))
    )
    out = tmp_path / "bundle"
    assert cli.main(["fit", "--config", config, "--seeds", str(seeds), "--out", str(out), "--k", "2"]) == 0
    assert "greetings, sums" in capsys.readouterr().out
    with open(config, "a") as more:
        more.write(f"bundle: {out}\n")
    assert cli.main(["explain", "--config", config, "--prompt", "What is 3 plus 9?", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["features"]["intent"]["nearest"] == "sums"


def said_of(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What check finds wrong with *text*."""
    path = folder / "odd.yaml"
    path.write_text(text)
    status = cli.main(["check", "--config", str(path)])
    said = capsys.readouterr().err
    assert (status == 1) == ("isogloss: " in said)
    return said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("envoy: {port: 9002}", "envoy.port (9002) is one of the ports that server.port takes"),
        ("server: {workers: 2, health_port: 9900}", "envoy.admin_port (9901) is one of the ports that server.health"),
        ("sessions: {store: redis, url: 'rediss+ring://x', secret: 0123456789abcdef}", "sessions.url: the scheme"),
        ("encoder: {tokens: 128}", "was fit on"),
        ("encoder: {layer: 2}", "isogloss fit"),
        ("encoder: {path: nowhere}", "nowhere"),
        ("server: {tls: {certificate: none.pem, key: none.key}}", "server.tls: cannot read"),
        ("server: {tls: {certificate: odd.yaml, key: odd.yaml}}", "not a certificate and its key"),
        ("fleet: {nodes: [{address: '1.2.3.4:5', pool: a}]}", "warning: rules.general: no node is in pool 'general'"),
        ("fleet: {file: nodes.yaml}", "warning: rules.general: no node is in pool 'general'; there are gpu"),
        ("rules: {pools: {code: {}}}\nfleet: {file: nodes.yaml}", "warning: rules.pools.code: no node is in it"),
        ("", "warning: fleet: no nodes"),
    ],
)
def test_check_says_before_the_service_does(text, said, tmp_path, capsys):
    (tmp_path / "nodes.yaml").write_text("[{address: '1.2.3.4:5', pool: gpu}]")
    assert said in said_of(text, tmp_path, capsys)


def test_check_knows_a_key_that_is_not_the_certificates(tmp_path, capsys):
    ca = trustme.CA()
    one, other = ca.issue_cert("a.test"), ca.issue_cert("a.test")
    one.cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    one.private_key_pem.write_to_path(tmp_path / "good.key")
    other.private_key_pem.write_to_path(tmp_path / "other.key")
    text = "envoy: {tls: {ca: ca.pem}}\nserver: {tls: {certificate: c.pem, key: %s.key%s}}"
    assert "server.tls" not in said_of(text % ("good", ""), tmp_path, capsys)
    assert "is not that of the certificate" in said_of(text % ("other", ""), tmp_path, capsys)
    assert "holds no PEM" in said_of(text % ("good", ", client_ca: odd.yaml"), tmp_path, capsys)


def test_a_key_with_a_pass_phrase_is_refused_and_nobody_is_asked_for_it(tmp_path, capsys):
    leaf = trustme.CA().issue_cert("a.test")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
    (tmp_path / "k.pem").write_bytes(locked)
    assert "without a pass phrase" in said_of("server: {tls: {certificate: c.pem, key: k.pem}}", tmp_path, capsys)


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert re.fullmatch(r"isogloss \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_explain_wants_an_address_that_is_one(config, capsys):
    assert cli.main(["explain", "--config", config, "--prompt", "hi", "--ip", "garbage"]) == 1
    assert capsys.readouterr().err == "isogloss: --ip 'garbage': not an IP address\n"


def test_the_readmes_configuration_is_good_as_it_stands(tmp_path, capsys):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (example,) = [block for block in re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL) if "pools:" in block]
    assert said_of(textwrap.dedent(example), tmp_path, capsys) == ""
