"""Which payload store the settings mean. The libraries behind them are loaded only here, and only then."""

from ..config.payloads import PayloadConfig, payloads_url
from ..errors import ConfigError
from .base import Payloads


def build_payloads(config: PayloadConfig) -> Payloads | None:
    """The payload store that the settings name; None: there is none."""
    url = payloads_url(config)
    if not url:
        return None
    try:
        return _build(url, config)
    except ModuleNotFoundError as error:
        got = f"no module named {error.name}"
        raise ConfigError("REGISTA_PAYLOADS", "the s3 extra (pip install 'regista[s3]')", got) from None


def _build(url: str, config: PayloadConfig) -> Payloads:
    kind, _, rest = url.partition(":")
    if kind == "memory":
        from .memory import MemoryPayloads

        return MemoryPayloads()
    if kind == "file":
        from .local import LocalPayloads

        return LocalPayloads(rest.removeprefix("//"), config.s3_max_concurrency)
    from .s3 import S3Service

    bucket, _, prefix = rest.removeprefix("//").partition("/")
    return S3Service(bucket, prefix.strip("/"), config)
