"""Signed tokens and key sets for tests, made with real keys."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "threadfold"


class Signer:
    """A private key with its id; ``kind`` is RS, ES or Ed."""

    def __init__(self, kid: str, kind: str = "ES") -> None:
        self.kid = kid
        self.key: Any
        if kind == "RS":
            self.key, self.algorithm, form = (
                rsa.generate_private_key(65537, 2048),
                "RS256",
                RSAAlgorithm,
            )
        elif kind == "ES":
            self.key, self.algorithm, form = (
                ec.generate_private_key(ec.SECP256R1()),
                "ES256",
                ECAlgorithm,
            )
        else:
            self.key, self.algorithm, form = (
                ed25519.Ed25519PrivateKey.generate(),
                "EdDSA",
                OKPAlgorithm,
            )
        self.jwk = {**json.loads(form.to_jwk(self.key.public_key())), "kid": kid, "use": "sig"}

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Claims that hold, with changes; None takes one out."""
        now = int(time.time())
        usual = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": now + 300,
            "iat": now,
            "tenant": "acme",
            "scope": "read append openid",
        }
        return {name: value for name, value in {**usual, **changes}.items() if value is not None}

    def token(
        self, *, algorithm: str | None = None, headers: dict[str, Any] | None = None, **changes: Any
    ) -> str:
        """A signed token."""
        return jwt.encode(
            self.claims(**changes),
            self.key,
            algorithm or self.algorithm,
            {"kid": self.kid, **(headers or {})},
        )


def key_set(*signers: Signer) -> bytes:
    """The JWKS document of these keys."""
    return json.dumps({"keys": [signer.jwk for signer in signers]}).encode()
