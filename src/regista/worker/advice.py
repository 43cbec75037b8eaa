"""What a worker's people can do about a refusal: that depends on what was refused."""

_TOKEN = (
    "set WORKER_TOKEN to the worker token of this orchestrator, or --dir (REGISTA_DIR) to the directory "
    "where it keeps its tokens"
)
_PASSWORD = "have another one made (`regista tokens otp`) and set REGISTA_TOKEN to it"
_SIGNED = "see that both sides have the same token, and that nothing in between changes messages"
_CLOCK = "set the clock of this machine"

#: Code of the problem → advice; for every other one it is the token.
_ADVICE = {
    "password_unknown": _PASSWORD,
    "password_used": _PASSWORD,
    "certificate_missing": "name this worker's certificate with TLS_CERT_PATH and TLS_KEY_PATH",
    "certificate_nameless": "use a certificate whose one common name is the id of this worker",
    "worker_mismatch": "set WORKER_ID to the name that the certificate, the password or the token is for, "
    "or use what was made for this worker",
    "signature_wrong": _SIGNED,
    "timestamp_missing": _CLOCK,
    "timestamp_off": _CLOCK,
}


def advice_for(code: str) -> str:
    """What to do about a refusal with this code."""
    return _ADVICE.get(code, _TOKEN)
