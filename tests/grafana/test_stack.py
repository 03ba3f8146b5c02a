"""The exported stack: its files, what they hold, and what is refused."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grafana.stack import Stack, export, files
from tierscope.errors import BadInputError

YAML_TO_JSON = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)"


def _yaml(document: str) -> Any:
    """Read YAML with PyYAML of this Python or the system's; skip where neither has it."""
    for python in (sys.executable, "/usr/bin/python3"):
        if Path(python).exists():
            done = subprocess.run(
                [python, "-c", YAML_TO_JSON], input=document, capture_output=True, text=True, check=False
            )
            if "No module named 'yaml'" not in done.stderr:
                assert done.returncode == 0, done.stderr
                return json.loads(done.stdout)
    pytest.skip("no Python here has PyYAML; the YAML was NOT parsed")


def test_an_export_writes_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    written = export(tmp_path / "stack")
    assert set(written) == {path for path in (tmp_path / "stack").rglob("*") if path.is_file()}
    assert {str(path.relative_to(tmp_path / "stack")) for path in written} == set(files(Stack()))


def test_no_place_to_fill_in_is_left(tmp_path: Path) -> None:
    for place, content in files(Stack()).items():
        assert re.search(r"@\w", content) is None, place


def test_a_folder_with_files_is_left_alone_unless_forced(tmp_path: Path) -> None:
    mine = tmp_path / "compose.yaml"
    mine.write_text("mine")
    with pytest.raises(BadInputError, match=r"holds files already"):
        export(tmp_path)
    assert [*tmp_path.iterdir()] == [mine]
    export(tmp_path, force=True)
    assert mine.read_text() == files(Stack())["compose.yaml"]


def test_a_folder_that_is_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    for force in (False, True):
        with pytest.raises(
            BadInputError, match=r"file: cannot be written: (Not a dir|File exists)"
        ) as refused:
            export(path, force=force)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("stack", "named"),
    [
        (Stack(load_target="127.0.0.1"), "load_target"),
        (Stack(load_target="127.0.0.1:99999"), "load_target"),
        (Stack(server_target='x"]\n:1'), "server_target"),
        (Stack(prometheus_port=0), "prometheus_port"),
        (Stack(grafana_port=9090), "grafana_port"),
        (Stack(scrape_interval_s=0), "scrape_interval_s"),
        (Stack(scrape_interval_s=float("nan")), "scrape_interval_s"),
        (Stack(baseline_tier='a"'), "baseline_tier"),
    ],
)
def test_an_impossible_stack_is_refused_in_one_line(stack: Stack, named: str) -> None:
    with pytest.raises(BadInputError, match=rf"^{named}: .* is not allowed; ") as refused:
        files(stack)
    assert "\n" not in str(refused.value)


def test_prometheus_scrapes_generator_and_server_as_often_as_told() -> None:
    stack = Stack(load_target="[::1]:1234", server_target="gpu.example:80", scrape_interval_s=0.25)
    config = _yaml(files(stack)["prometheus/prometheus.yml"])
    assert config["global"]["scrape_interval"] == "250ms"
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    assert targets == {"tierscope": ["[::1]:1234"], "llm-server": ["gpu.example:80"]}
    # The classic buckets are what dashboards and rules read: a conversion must keep them.
    for job in config["scrape_configs"]:
        assert job["convert_classic_histograms_to_nhcb"] is job["always_scrape_classic_histograms"] is True


def test_the_compose_file_pins_images_checks_health_and_listens_on_loopback_only() -> None:
    services = _yaml(files(Stack(prometheus_port=9999))["compose.yaml"])["services"]
    assert set(services) == {"prometheus", "grafana"}
    for service in services.values():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"])
        assert service["healthcheck"]["test"][-1].startswith("http://127.0.0.1:")
        assert "ports" not in service
    assert re.search(r":v3\.", services["prometheus"]["image"])
    assert "--web.listen-address=127.0.0.1:9999" in services["prometheus"]["command"]
    grafana = services["grafana"]["environment"]
    assert grafana["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_grafana_finds_its_source_and_the_dashboards_where_the_compose_file_puts_them() -> None:
    stack = files(Stack(prometheus_port=9999))
    (source,) = _yaml(stack["grafana/provisioning/datasources/tierscope.yml"])["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://127.0.0.1:9999")
    assert source["jsonData"]["timeInterval"] == "1s"
    (provider,) = _yaml(stack["grafana/provisioning/dashboards/tierscope.yml"])["providers"]
    volumes = _yaml(stack["compose.yaml"])["services"]["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in volumes
    assert any(place.startswith("grafana/dashboards/") for place in stack)
