"""Who may see the dashboard: the token as in Jupyter, cookies, and host names.

`up` prints an address with a token. A browser that opens it gets a cookie in exchange, and an address
without the token, so that the token is neither in the history nor in a Referer. Scripts send it as a
bearer token. `run` has no token: its port serves the dashboard only to clients on the same machine.

A page of another site that has its name resolve to 127.0.0.1 (DNS rebinding) sends that name as the
host, and is refused; the cookie is not sent with requests of other sites (SameSite). Other requests of
pages of other sites are refused too: they could not read the answer, but start an explanation.
"""

from __future__ import annotations

import hmac
import secrets
from ipaddress import ip_address

from aiohttp import web

_COOKIE = "holdfast-dashboard"
_TOKEN_BYTES = 32
_LOCAL_NAMES = ("localhost", "ip6-localhost")


def new_token() -> str:
    return secrets.token_hex(_TOKEN_BYTES)


class DashboardAccess:
    """Checks requests. Without a token, only the host is checked."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        self.port = 0
        """The port that is served; cookies of several dashboards on one machine differ by it."""

    def host_is_local(self, request: web.BaseRequest) -> bool:
        """Whether the request is for a name that always means this machine."""
        host = request.headers.get("Host", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name.lower() in _LOCAL_NAMES:
            return True
        try:
            return ip_address(name).is_loopback
        except ValueError:
            return False

    def is_from_elsewhere(self, request: web.BaseRequest) -> bool:
        """Whether a page of another site sent the request, other than by a link to follow."""
        site = request.headers.get("Sec-Fetch-Site", "none")
        mode = request.headers.get("Sec-Fetch-Mode", "navigate")
        return site not in ("none", "same-origin") and mode != "navigate"

    def is_allowed(self, request: web.BaseRequest) -> bool:
        """Whether the request has the token, as a cookie or as a bearer token."""
        if self._token is None:
            return True
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(bearer.strip()):
            return True
        return self._is_token(request.cookies.get(self._cookie, ""))

    def redeem(self, request: web.BaseRequest) -> web.Response | None:
        """The answer to an address with the right token: the same address without it, and the cookie.
        None if there is no token in the address, or not the right one."""
        given = request.query.get("token", "")
        if self._token is None or not self._is_token(given):
            return None
        response = web.Response(status=302, headers={"Location": request.path})
        response.set_cookie(self._cookie, given, path="/", httponly=True, samesite="Strict")
        return response

    @property
    def _cookie(self) -> str:
        return f"{_COOKIE}-{self.port}"

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())
