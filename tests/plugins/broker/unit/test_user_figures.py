"""What is counted of each user of a broker, and under which names an operator finds it."""

from __future__ import annotations

from sandbox_kernel.engines.inspectable import CrowdUser
from sandbox_kernel.engines.owner_process import account_name
from sandbox_kernel.plugins.broker.prometheus_metrics import MAX_USERS, OTHERS, BrokerFigures, Gauges
from tests.support.grafana import declared, figures

NOTHING = Gauges(states={}, connections=0, memory_promised=0, kept=0, pool_made=0, pool_lost=0)


def test_any_number_of_names_takes_a_bounded_room() -> None:
    """Who was known before is still counted alone."""
    one = BrokerFigures()
    for number in range(MAX_USERS + 500):
        one.refused("broker-denied", number)
    one.refused("broker-denied", 0)
    assert len(one.of_users) == MAX_USERS + 1
    assert one.of_users[0]["refused"] == 2
    assert one.of_users[OTHERS]["refused"] == 500
    one.refused("broker-no-account")
    assert sum(counted["refused"] for counted in one.of_users.values()) == MAX_USERS + 501, "nobody's is no user's"


def test_a_user_has_the_name_of_an_account_or_a_number() -> None:
    assert account_name(0) == "root"
    assert account_name(1_999_999_999) == "uid 1999999999"


def test_a_name_adds_no_line_to_the_page() -> None:
    name = 'odd:a"} 1\nsandbox_kernel_broker_connections 7'
    user = CrowdUser(
        name=name, sandboxes=1, memory_promised=2, memory_used=3, cpu_seconds=4.5, started=5, refused=6
    )  # fmt: skip
    lines = BrokerFigures().page(NOTHING, [user]).splitlines()
    assert [line for line in lines if line.startswith("sandbox_kernel_broker_connections")] == [
        "sandbox_kernel_broker_connections 0"
    ]
    assert len([line for line in lines if "odd:a" in line]) == 6


def test_the_dashboard_of_grafana_asks_for_figures_that_there_are() -> None:
    page = BrokerFigures().page(NOTHING)
    asked = figures("sandbox_kernel_broker")
    assert len(asked) >= 7
    assert asked <= declared(page)
