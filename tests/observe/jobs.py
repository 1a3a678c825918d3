"""Leaders, as a gateway sees them: they campaign over HTTP, write with their token, and pause."""

import http.client
import json
import ssl
import threading

from servers import Failed


def connection(port, tls=False):
    if not tls:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    # The certificate was made a moment ago, for this check alone.
    context = ssl._create_unverified_context()
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)


def call(port, method, path, body=None, headers=None, tls=False):
    """The status and the body of any request."""
    way = connection(port, tls)
    try:
        way.request(method, path, body=body, headers=headers or {})
        response = way.getresponse()
        return response.status, response.read().decode()
    finally:
        way.close()


class Gateway:
    """A gateway by its ports."""

    def __init__(self, data, admin, tls=False):
        self.data, self.admin, self.tls = data, admin, tls

    def order(self, path, **what):
        """A call of the JSON API, which has to be granted."""
        status, body = call(self.admin, "POST", path, json.dumps(what), {"content-type": "application/json"})
        if status >= 300:
            raise Failed(f"{path} {what}: {status} {body}")
        return json.loads(body) if body else {}

    def write(self, path, token=None, resource=None, method="POST"):
        """The status of a request."""
        headers = {} if token is None else {"X-Fencing-Token": str(token)}
        if resource:
            headers["X-Fencing-Resource"] = resource
        return call(self.data, method, path, b"pay" if method == "POST" else None, headers, self.tls)[0]


class Job:
    """Somebody who campaigns for a resource."""

    def __init__(self, gateway, resource, holder, ttl):
        self.gateway, self.resource, self.holder, self.ttl = gateway, resource, holder, ttl

    def campaign(self):
        won = self.gateway.order(
            "/v1/elections/campaign", resource=self.resource, holder=self.holder, ttl_seconds=self.ttl, wait_seconds=30,
        )
        self.token, self.lease = won["token"], won["lease"]

    def stand_in_line(self):
        """Campaigns behind the leader, and returns what waits until it has won."""
        failures = []

        def campaign():
            try:
                self.campaign()
            except Exception as error:  # of any kind: it is raised where it is waited for
                failures.append(error)

        waiting = threading.Thread(target=campaign, daemon=True)
        waiting.start()

        def has_won():
            waiting.join(timeout=60)
            if failures or waiting.is_alive():
                raise Failed(f"{self.holder} did not win {self.resource}: {failures}")

        return has_won

    def renew(self):
        self.gateway.order("/v1/elections/renew", resource=self.resource, lease=self.lease)

    def resign(self):
        self.gateway.order("/v1/elections/resign", resource=self.resource, lease=self.lease)


def expect(expected, status, what):
    if status != expected:
        raise Failed(f"{what}: {status} in place of {expected}")


def in_line(gateway, resource):
    _, body = call(gateway.admin, "GET", f"/v1/elections?resource={resource}")
    return json.loads(body)["waiting"]
