"""The HTTP connection to one server, and nothing else: everything of aiohttp that blend touches.

Requests go to the base URL alone: redirects are not followed, proxies and credentials of the
environment are not read, cookies are not kept.
"""

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from blend.core.engines.openai_retry import Trouble
from blend.core.engines.openai_wire import Response

CONNECT_S = 10.0
MAX_ANSWER_BYTES = 256 << 20

# Shorter than the servers' own, 5 s for vLLM: a request must not go into a closing connection.
_KEEP_ALIVE_S = 4.0
_CHUNK_BYTES = 1 << 16
_JSON = {"Content-Type": "application/json"}

# What is shorter, such as `EMPTY`, is a word that an error may hold, and no secret.
_SECRET_CHARACTERS = 8


class UnansweredError(Exception):
    """No whole response came: what kind of trouble it is, and why.

    ``hopeless`` when waiting will not help: the address or the certificate is wrong.
    """

    def __init__(self, trouble: Trouble, reason: str, *, hopeless: bool = False):
        super().__init__(reason)
        self.trouble = trouble
        self.reason = reason
        self.hopeless = hopeless


class Connection:
    """A pool of connections to one server."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str, *, secret: str | None):
        self._session = session
        self._base_url = base_url
        self._secret = secret if secret and len(secret) >= _SECRET_CHARACTERS else None

    async def get(self, path: str, *, timeout_s: float) -> Response:
        """Return the response to a GET; raise UnansweredError when none came."""
        return await self._request("GET", path, None, timeout_s)

    async def post(self, path: str, body: bytes, *, timeout_s: float) -> Response:
        """Return the response to a POST of JSON; raise UnansweredError when none came."""
        return await self._request("POST", path, body, timeout_s)

    async def _request(
        self, method: str, path: str, content: bytes | None, timeout_s: float
    ) -> Response:
        begun = False
        try:
            async with self._session.request(
                method,
                self._base_url + path,
                data=content,
                headers=_JSON if content is not None else None,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S),
                allow_redirects=False,
            ) as response:
                begun = True
                body = await _read(response)
                return Response(
                    response.status,
                    body if response.status == 200 else self._without_secret(body),
                    retry_after=response.headers.get("Retry-After"),
                    location=response.headers.get("Location"),
                )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unanswered(error, timeout_s, begun=begun) from error

    def _without_secret(self, body: bytes) -> bytes:
        """Return an error's body without the API key, which some servers repeat in it."""
        return body.replace(self._secret.encode(), b"[API key]") if self._secret else body


@asynccontextmanager
async def open_connection(base_url: str, api_key: str | None) -> AsyncIterator[Connection]:
    """Open a pool of connections to *base_url*; how many is the caller's to bound."""
    headers = {"User-Agent": "blend"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    ) as session:
        yield Connection(session, base_url, secret=api_key)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            response.close()
            raise UnansweredError("broken", f"the answer is larger than {MAX_ANSWER_BYTES:,} bytes")
    return bytes(body)


# In both, each class comes before those it derives from, and the texts are our own: those of an
# exception may hold what was sent.


def _unanswered(
    error: aiohttp.ClientError | TimeoutError, timeout_s: float, *, begun: bool
) -> UnansweredError:
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return _unreachable(error)
        case TimeoutError():
            reason = f"no whole answer within {timeout_s:g} s"
            return UnansweredError("broken" if begun else "silent", reason)
        case aiohttp.ClientPayloadError():
            reason = "the answer broke off"
        case aiohttp.ClientResponseError():
            reason = "what came back is not HTTP"
        case _:
            reason = "the connection was lost"
    return UnansweredError("broken", reason)


def _unreachable(
    error: aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError,
) -> UnansweredError:
    hopeless = True
    match error:
        case aiohttp.ClientConnectorCertificateError():
            reason = f"its certificate is not trusted: {error.certificate_error}"
        case aiohttp.ClientSSLError():
            reason = "it does not speak TLS"
        case aiohttp.ClientConnectorDNSError():
            reason = f"unknown host: {error.host}"
        case aiohttp.ClientConnectorError():
            hopeless = False
            reason = f"cannot connect: {_words(error.os_error)}"
        case _:
            hopeless = False
            reason = f"cannot connect within {CONNECT_S:g} s"
    return UnansweredError("unreachable", reason, hopeless=hopeless)


def _words(error: OSError) -> str:
    # asyncio's own words for it hold the address, which has been said.
    known = error.errno in errno.errorcode
    return os.strerror(error.errno).lower() if known and error.errno else "connection refused"
