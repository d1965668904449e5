"""The commands, as an operator meets them."""

import json

import pytest

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
