"""Why Redis turns a client away, and what to change: what its own words leave open."""

from __future__ import annotations

from projections.errors import RedisUnavailable

CHECK = "check that it runs"
_LOGIN = "check the user and the password in its URL"
_RIGHTS = "give its user the rights that the docs' page on security lists"
_AUTHORITY = (
    "name the authority that signed its certificate in ssl_ca_certs, and the server by a name of"
    " its certificate"
)
_CERTIFICATE = f"{CHECK}; if it wants a client certificate, set ssl_certfile and ssl_keyfile"
_TLS = f"{CHECK}; if it speaks TLS there, its URL begins with rediss"
_NO_TLS = f"{CHECK}; if it does not speak TLS there, its URL begins with redis"
_BROKEN = ("closed by server", "reset by peer", "EOF occurred", "CERTIFICATE_REQUIRED")
ADVICE: tuple[tuple[bool | None, tuple[str, ...], str], ...] = (
    (None, ("username-password", "WRONGPASS", "NOAUTH", "uthentication required"), _LOGIN),
    (None, ("no permissions", "NOPERM"), _RIGHTS),
    (True, ("CERTIFICATE_VERIFY_FAILED",), _AUTHORITY),
    (True, _BROKEN, _CERTIFICATE),
    (True, ("Timeout connecting", "WRONG_VERSION_NUMBER", "record layer"), _NO_TLS),
    (False, _BROKEN, _TLS),
)
"""For URLs with TLS, without it or both (None): words of an error, and what to do then."""


def explained(url: str, error: RedisUnavailable) -> str:
    """The error's sentence, which ends with what to do."""
    text, tls = str(error), url.startswith("rediss")
    for where, words, advice in ADVICE:
        if where in (None, tls) and any(word in text for word in words):
            return f"{text.removesuffix(f': {CHECK}')}: {advice}"
    return text
