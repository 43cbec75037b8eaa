"""S3Service: files in a bucket of S3, or of any server that speaks like it."""

from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from obstore.store import S3Store

from ..config.payloads import PayloadConfig
from ..errors import FileMissing, PayloadUnavailable
from .objects import ObjectPayloads

if TYPE_CHECKING:
    from obstore.store import S3Config

#: Silence after which a transfer counts as dead. The transfer itself may take as long as it takes.
_SILENCE_S = 120
_WHOLE_S = 24 * 3600
#: A request is tried again so often, and for so long.
_RETRIES, _RETRY_S = 3, 15


class S3Service(ObjectPayloads):
    """Files in a bucket. It signs URLs, so that clients and browsers come to it directly."""

    signs = True

    def __init__(self, bucket: str, prefix: str, config: PayloadConfig) -> None:
        """Without S3_ACCESS_KEY the credentials are found where AWS programs find them."""
        store = S3Store(
            bucket,
            prefix=prefix or None,
            config=_config(config),
            client_options={
                "timeout": timedelta(seconds=_WHOLE_S),
                "read_timeout": timedelta(seconds=_SILENCE_S),
                "connect_timeout": timedelta(seconds=5),
                "allow_http": config.s3_endpoint_url.startswith("http:"),
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
        )
        root = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        self._place = f"the bucket {bucket!r} at {config.s3_endpoint_url or 'AWS'}"
        super().__init__(store, root.rstrip("/"), config.s3_max_concurrency)

    async def start(self) -> None:
        """Look whether the bucket is there, and whether we may look into it."""
        try:
            await self._folders("none")
        except (FileMissing, PayloadUnavailable) as error:
            why = f"{self._place} cannot be used; is it there, and are key and secret right? {error}"
            raise PayloadUnavailable(why) from error


def _config(config: PayloadConfig) -> "S3Config":
    known: S3Config = {"region": config.s3_region, "virtual_hosted_style_request": not config.s3_endpoint_url}
    if config.s3_endpoint_url:
        known["endpoint"] = config.s3_endpoint_url.rstrip("/")
    if config.s3_access_key:
        known["access_key_id"] = config.s3_access_key
        known["secret_access_key"] = config.s3_secret_key
    return known


def s3_config_hash(config: PayloadConfig) -> str:
    """Names the place without telling the key: two who say the same can hand each other paths."""
    words = f"{config.s3_endpoint_url}|{config.s3_access_key}|{config.s3_default_bucket}"
    return sha256(words.encode()).hexdigest()[:16]
