"""A bucket that is not there, a key that is wrong, a server that is away: said at the start, and why."""

import asyncio
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from regista.errors import PayloadUnavailable
from regista.payloads.s3 import S3Service
from tests.s3_server import S3Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from serving()


def started(server: S3Server, bucket: str = "payloads", **changes: str) -> None:
    asyncio.run(S3Service(bucket, "", replace(server.config(), **changes)).start())


def test_a_bucket_that_is_there_is_fine(server: S3Server) -> None:
    started(server)


@pytest.mark.parametrize(
    ("bucket", "changes", "why"),
    [
        ("none", {}, "404"),
        ("payloads", {"s3_secret_key": "not-the-secret"}, "403"),
        ("payloads", {"s3_access_key": "nobody"}, "403"),
        ("payloads", {"s3_endpoint_url": "http://127.0.0.1:9"}, "is away"),
    ],
)
def test_whatever_is_wrong_stops_the_start_and_says_why(
    server: S3Server, bucket: str, changes: dict[str, str], why: str
) -> None:
    with pytest.raises(PayloadUnavailable, match="cannot be used; is it there") as refused:
        started(server, bucket, **changes)

    assert why in str(refused.value)
    assert f"the bucket '{bucket}' at http://127.0.0.1:" in str(refused.value)
    assert "not-the-secret" not in str(refused.value)
