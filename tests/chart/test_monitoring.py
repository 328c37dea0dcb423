"""What Prometheus, Grafana and the network are told."""

from __future__ import annotations

import re

import pytest
import yaml

from ..kubernetes.chart import CHART, notes, rendered
from .objects import all_of, one

ALERTS = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DOCS = CHART.parents[1] / "docs"
PAGES = "".join((DOCS / f"{page}.md").read_text() for page in ("metrics", "monitor", "node-agent"))
EVERYTHING = {
    "metrics": {
        "serviceMonitors": {"enabled": True, "labels": {"release": "prometheus"}},
        "rules": {"enabled": True, "labels": {"release": "prometheus"}},
        "scrapeConfig": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    "networkPolicy": {"enabled": True},
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_a_metric_that_there_is_and_says_what_to_do(rule):
    names = set(re.findall(r"\bhami_\w+", rule["expr"]))
    documented = {re.sub("_bucket$", "", name) for name in names}
    assert all(f"`{name}`" in PAGES for name in documented), documented
    assert names or "up{" in rule["expr"]
    assert set(rule["annotations"]) == {"summary", "description"}
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}


def test_everything_is_behind_values():
    kinds = {"ServiceMonitor", "PrometheusRule", "NetworkPolicy"}
    assert not kinds & {thing["kind"] for thing in rendered()}
    assert kinds <= {thing["kind"] for thing in rendered(EVERYTHING)}


def test_a_service_monitor_finds_a_service_and_its_port():
    objects = rendered(EVERYTHING)
    for found in all_of(objects, "ServiceMonitor"):
        labels = found["spec"]["selector"]["matchLabels"]
        services = [s for s in all_of(objects, "Service") if labels.items() <= s["metadata"]["labels"].items()]  # fmt: skip
        (service,) = services
        (endpoint,) = found["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        assert endpoint["honorLabels"] is True, "docs/monitor.md: else pods' names are lost"
        assert found["metadata"]["labels"]["release"] == "prometheus"


def test_a_prometheus_without_operator_scrapes_the_same():
    objects = rendered(EVERYTHING)
    data = one(objects, "ConfigMap", "hami-prometheus")["data"]
    jobs = {job["job_name"]: job for job in yaml.safe_load(data["scrape.yaml"])["scrape_configs"]}
    assert jobs.keys() == {found["metadata"]["name"] for found in all_of(objects, "ServiceMonitor")}
    assert all(job["honor_labels"] for job in jobs.values())
    rules = one(objects, "PrometheusRule", "hami")["spec"]
    assert yaml.safe_load(data["rules.yaml"]) == rules
    assert "RELEASE" not in data["rules.yaml"]
    down = rules["groups"][0]["rules"][0]["expr"]
    (pattern,) = re.findall(r'job=~"(.*?)"', down)
    assert all(re.fullmatch(pattern, job) for job in jobs)


def test_a_network_policy_is_for_every_pod_and_lets_the_api_server_in():
    objects = rendered({"networkPolicy": {"enabled": True, "scrapers": [{"podSelector": {}}]}})
    pods = {
        w["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: w
        for w in all_of(objects, "Deployment", "DaemonSet")
    }
    policies = all_of(objects, "NetworkPolicy")
    assert {p["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for p in policies} == set(pods)  # fmt: skip
    scheduler = one(objects, "NetworkPolicy", "hami-scheduler")["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in scheduler if "from" not in rule] == [9443]
    assert [rule["from"] for rule in scheduler if "from" in rule] == [[{"podSelector": {}}]]


def test_the_notes_say_what_to_do_next():
    text = notes()
    assert "pod-security.kubernetes.io/enforce=privileged" in text
    assert "gpu=on" in text
    assert "helm -n hami test hami" in text
    assert "WARNING" not in text
    assert "signing is off" in notes({"signing": {"enabled": False}})
    assert "Set certificate.caBundle" in notes({"certificate": {"source": "secret"}})
    assert "No vendor is enabled" in notes({"vendors": {"NVIDIA": {"enabled": False}}})
