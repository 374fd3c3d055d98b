"""Sign a statement, and check its signature; the libraries are those of the extra `sign`.

A signed statement is a Sigstore bundle: a DSSE envelope of the statement, and what verifies it: the
sha256 of the reviewer's public key or, without a key, a certificate that Sigstore has issued.
securesystemslib signs with a key, sigstore without one.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from auditor.downloader.local_file import read_all
from auditor.errors import AuditError, SourceError, UsageError
from auditor.extras import install
from auditor.formats.json_values import json_text
from auditor.messages import printable, quoted
from auditor.publishing.statement import canonical
from auditor.redaction import hide

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_LARGEST_KEY = 64 * 1024  # bytes; a PEM file of RSA with 16,384 bits has 13 kB


class SignatureError(AuditError):
    """A signature is wrong: another key made it, or a byte of the statement was changed."""


class UncheckedError(AuditError):
    """A statement cannot be signed, or its signature cannot be checked, for an outside reason."""


@contextmanager
def _extra() -> Iterator[None]:
    """Raise UsageError if a library that the block imports is not installed."""
    try:
        yield
    except ImportError as error:
        library = f"{error.name} is not installed"
        raise UsageError(f"signatures need libraries: {library}; {install('sign')}") from None


def _pem(path: Path) -> bytes:
    try:
        return read_all(path, _LARGEST_KEY)
    except SourceError as error:
        raise UsageError(f"--key: {error}") from None


# --- with a key -----------------------------------------------------------------------------------


def sign_with_key(statement: bytes, key: Path, password: Callable[[], str]) -> bytes:
    """Return a bundle signed by a private key in a PEM file: ECDSA, Ed25519 or RSA.

    `password` is called if the key is encrypted. Raise UsageError for a file without such a key.
    """
    with _extra():
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - likewise
            load_pem_private_key,
        )
        from securesystemslib.dsse import Envelope  # noqa: PLC0415 - likewise
        from securesystemslib.signer import CryptoSigner, SSlibKey  # noqa: PLC0415 - likewise
    pem = _pem(key)
    try:
        try:
            private = load_pem_private_key(pem, None)
        except TypeError:  # the key is encrypted
            private = load_pem_private_key(pem, password().encode())
        public = SSlibKey.from_crypto(private.public_key(), _key_hash(private.public_key()))
        signer = CryptoSigner(private, public)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        detail = f"is not a private key that can sign ({printable(str(error))})"
        raise UsageError(f"--key: {quoted(str(key))} {detail}") from None
    signature = Envelope(statement, PAYLOAD_TYPE, {}).sign(signer)
    return canonical(_bundle(statement, bytes.fromhex(signature.signature), public.keyid))


def _key_hash(public_key: Any) -> str:
    """Return the sha256 of a public key's PEM text, by which model_signing identifies a key."""
    from hashlib import sha256  # noqa: PLC0415 - 3.5 MB, few commands sign

    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - an extra
        Encoding,
        PublicFormat,
    )

    pem = public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return sha256(pem).hexdigest()


def _bundle(statement: bytes, signature: bytes, key_hash: str) -> dict[str, Any]:
    return {
        "mediaType": _MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": key_hash}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": b64encode(statement).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": b64encode(signature).decode(), "keyid": ""}],
        },
    }


def check_with_key(bundle: Mapping[str, Any], key: Path) -> None:
    """Raise SignatureError if the private half of a PEM file's public key did not sign a bundle."""
    with _extra():
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - likewise
            load_pem_public_key,
        )
        from securesystemslib.dsse import Envelope  # noqa: PLC0415 - likewise
        from securesystemslib.exceptions import VerificationError  # noqa: PLC0415 - likewise
        from securesystemslib.signer import Signature, SSlibKey  # noqa: PLC0415 - likewise
    try:
        public_key = load_pem_public_key(_pem(key))
        public = SSlibKey.from_crypto(public_key, _key_hash(public_key))
    except (ValueError, UnsupportedAlgorithm) as error:
        detail = f"is not a public key that can verify ({printable(str(error))})"
        raise UsageError(f"--key: {quoted(str(key))} {detail}") from None
    payload, signature = envelope_of(bundle)
    if bundle != _bundle(payload, signature, public.keyid):
        raise SignatureError(f"the signature is not by the key {quoted(str(key))}")
    signatures = {public.keyid: Signature(public.keyid, signature.hex())}
    try:
        Envelope(payload, PAYLOAD_TYPE, signatures).verify([public], 1)
    except VerificationError:
        raise SignatureError("the signature does not fit the statement") from None


# --- without a key --------------------------------------------------------------------------------


def sign_with_identity(statement: bytes) -> bytes:
    """Return a bundle signed by the identity of this job, or of the person at a browser.

    Sigstore issues the certificate and logs the signature publicly. Raise UncheckedError if one of
    its services cannot be reached or refuses.
    """
    with _extra():
        from sigstore.dsse import Statement  # noqa: PLC0415 - an extra
        from sigstore.models import ClientTrustConfig  # noqa: PLC0415 - likewise
        from sigstore.oidc import IdentityToken, Issuer, detect_credential  # noqa: PLC0415
        from sigstore.sign import SigningContext  # noqa: PLC0415 - likewise
    with _services("cannot be signed"):
        trust = ClientTrustConfig.production()
        ambient = detect_credential()
        if ambient is not None:
            hide(ambient)
            token = IdentityToken(ambient)
        else:
            token = Issuer(trust.signing_config.get_oidc_url()).identity_token()
        with SigningContext.from_trust_config(trust).signer(token) as signer:
            bundle = signer.sign_dsse(Statement(statement))
        return canonical(json.loads(bundle.to_json()))


def check_with_identity(bundle: Mapping[str, Any], identity: str, issuer: str | None) -> None:
    """Raise SignatureError unless a bundle was signed by an identity, such as an e-mail address.

    Raise UncheckedError if Sigstore's root of trust cannot be read.
    """
    with _extra():
        from sigstore.errors import VerificationError  # noqa: PLC0415 - an extra
        from sigstore.models import Bundle, InvalidBundle  # noqa: PLC0415 - likewise
        from sigstore.verify import Verifier, policy  # noqa: PLC0415 - likewise
    try:
        signed = Bundle.from_json(json_text(bundle))
    except InvalidBundle as error:
        raise SignatureError(f"the bundle is not of sigstore: {error}") from None
    if json.loads(signed.to_json()) != bundle:
        raise SignatureError("the bundle is not in the form that sigstore writes")
    with _services("the signature cannot be checked"):
        verifier = Verifier.production()
    try:
        kind, _ = verifier.verify_dsse(signed, policy.Identity(identity=identity, issuer=issuer))
    except VerificationError as error:
        raise SignatureError(f"the signature is wrong: {error}") from None
    if kind != PAYLOAD_TYPE:
        raise SignatureError(f"the signature is of {quoted(kind)}, expected {PAYLOAD_TYPE}")


@contextmanager
def _services(failure: str) -> Iterator[None]:
    """Turn an error of Sigstore's services, of whatever type, into UncheckedError."""
    try:
        yield
    except Exception as error:
        detail = " ".join(printable(str(error)).split())[:300]
        raise UncheckedError(f"{failure}: {type(error).__name__}: {detail}") from error


# --- reading --------------------------------------------------------------------------------------


class SignedPayload(NamedTuple):
    """The statement in a bundle, and its signature."""

    payload: bytes
    signature: bytes


def envelope_of(bundle: Mapping[str, Any]) -> SignedPayload:
    """Read the envelope of a bundle; raise SignatureError if it has another form.

    Base64 must have the form that encoders write; decoders accept several texts for some bytes.
    """
    try:
        envelope: Any = bundle["dsseEnvelope"]
        [signature] = envelope["signatures"]
        texts = envelope["payload"], signature["sig"]
        payload, signed = (b64decode(text, validate=True) for text in texts)
        is_usual = tuple(b64encode(part).decode() for part in (payload, signed)) == texts
    except (KeyError, TypeError, ValueError):
        is_usual = False
    if not is_usual or envelope["payloadType"] != PAYLOAD_TYPE:
        raise SignatureError(f"its envelope is not one of {PAYLOAD_TYPE} with one signature")
    return SignedPayload(payload, signed)
