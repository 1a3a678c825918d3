"""A cluster to look at: a failover with a stale write, then one leader that goes on working, until Ctrl-C."""

import shutil
import sys
import time
import urllib.parse
from pathlib import Path

from jobs import Gateway, Job, expect, in_line
from servers import ROOT, Failed, Prometheus, Stage, free_port, get, is_free, wait_for

# Those of scripts/cluster.
GATEWAYS = [Gateway(8081 + number, 9911 + number) for number in range(3)]
RESOURCE = "ledger"
TTL = 5


def main(highgate):
    with Stage() as stage:
        for port in (port for gateway in GATEWAYS for port in (gateway.data, gateway.admin)):
            if not is_free(port):
                raise Failed(f"port {port} is taken; is scripts/cluster running?")
        print("starting three etcd nodes and three gateways ...", flush=True)
        stage.start("cluster", ROOT / "scripts/cluster", env={"HIGHGATE": highgate})
        for gateway in GATEWAYS:
            stage.is_up("cluster", gateway.admin, "/readyz", seconds=120)
        prometheus = Prometheus(stage, {"highgate": [gateway.admin for gateway in GATEWAYS]}, "1s", wanted(9090))
        leader = failover(prometheus)
        show_links(prometheus, grafana(stage, prometheus))
        work(leader)


def wanted(port):
    return port if is_free(port) else free_port()


def failover(prometheus):
    """Two jobs, and one of them sleeps through the end of its lease."""
    one, two, three = GATEWAYS
    first, second = Job(one, RESOURCE, "job-1", TTL), Job(two, RESOURCE, "job-2", TTL)
    first.campaign()
    expect(200, one.write("/", first.token, RESOURCE), "the leader's write")
    print(f"job-1 leads {RESOURCE} with token {first.token}, writes through gateway 1, and falls asleep")
    has_won = second.stand_in_line()
    wait_for("job-2 in line", lambda: in_line(two, RESOURCE) == 1)
    has_won()
    expect(200, two.write("/", second.token, RESOURCE), "the next leader's write")
    print(f"job-2 leads with token {second.token} since job-1's lease ran out, and writes through gateway 2")
    expect(412, three.write("/", first.token, RESOURCE), "the stale write")
    print(f"job-1 wakes up and writes with token {first.token} through gateway 3: 412, stale")
    wait_for("Prometheus has seen it", lambda: prometheus.instant('highgate_requests_total{reason="stale"} > 0'))
    return second


def show_links(prometheus, grafana_port):
    here = f"http://127.0.0.1:{prometheus.port}"
    if get(prometheus.port, "/alerts")[0] != 200:
        # Debian's, whose pages are files of the package.
        here += "/classic"
        if not Path("/usr/share/prometheus/web").is_dir():
            print("\nThe pages of Debian's Prometheus need its package: apt-get install prometheus")
    graph = urllib.parse.urlencode({"g0.expr": "highgate_leader_info", "g0.tab": 0, "g0.range_input": "15m"})
    print(f"""
  Prometheus  {here}/alerts          what fires
              {here}/graph?{graph}
  live page   http://127.0.0.1:{GATEWAYS[0].admin}/""")
    if grafana_port:
        print(f"  Grafana     http://127.0.0.1:{grafana_port}/d/highgate")
    else:
        print("  Grafana     not installed here; import config/grafana/highgate.json into yours")
    print("job-2 goes on writing. Ctrl-C ends all of it.", flush=True)


def grafana(stage, prometheus):
    """The port of a Grafana with the dashboard in it; None where there is no Grafana."""
    server = shutil.which("grafana-server")
    if not server:
        return None
    port, folder = wanted(3000), stage.folder / "grafana"
    for part in ("provisioning/datasources", "provisioning/dashboards", "dashboards"):
        (folder / part).mkdir(parents=True)
    shutil.copy(ROOT / "config/grafana/highgate.json", folder / "dashboards")
    (folder / "provisioning/datasources/prometheus.yml").write_text(
        f"apiVersion: 1\ndatasources: [{{ name: Prometheus, type: prometheus, access: proxy, isDefault: true, "
        f"url: 'http://127.0.0.1:{prometheus.port}' }}]\n"
    )
    (folder / "provisioning/dashboards/highgate.yml").write_text(
        f"apiVersion: 1\nproviders: [{{ name: highgate, type: file, options: {{ path: '{folder}/dashboards' }} }}]\n"
    )
    settings = {
        "SERVER_HTTP_ADDR": "127.0.0.1", "SERVER_HTTP_PORT": str(port), "PATHS_PROVISIONING": f"{folder}/provisioning",
        "PATHS_DATA": f"{folder}/data", "PATHS_LOGS": f"{folder}/logs", "AUTH_ANONYMOUS_ENABLED": "true",
        "ANALYTICS_REPORTING_ENABLED": "false", "ANALYTICS_CHECK_FOR_UPDATES": "false",
    }
    environment = {f"GF_{name}": value for name, value in settings.items()}
    stage.start("grafana", server, "--homepath", "/usr/share/grafana", env=environment)
    stage.is_up("grafana", port, "/api/health", seconds=60)
    return port


def work(leader):
    """Writes and renews once a second."""
    while True:
        leader.renew()
        expect(200, leader.gateway.write("/", leader.token, RESOURCE), "the leader's write")
        time.sleep(1)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        print("\nended")
    except Failed as error:
        sys.exit(f"scripts/observe: {error}")
