"""Files through a real nginx with the configuration of deploy/: names with folders, and more than a body may have."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regista import Client, Connection
from tests.acceptance.edge import Edge
from tests.acceptance.nginx_kit import TOKENS

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    settings: dict[str, Any] = {
        "REGISTA_PAYLOADS": f"file:{tmp_path / 'payloads'}",
        "REGISTA_TRUSTED_PROXIES": "127.0.0.1",
    }
    edge = Edge(tmp_path / "edge", [f"sqlite:{tmp_path / 'jobs.db'}"], **settings)
    try:
        edge.start()
        yield edge
    finally:
        edge.stop()


async def test_a_large_file_goes_up_and_comes_down_by_links_that_lead_to_the_edge(
    edge: Edge, tmp_path: Path
) -> None:
    connection = Connection(url=edge.nginx.url, token=TOKENS["CLIENT_TOKEN"], tls_ca_path=str(edge.nginx.ca))
    async with Client(connection=connection) as client:
        job = await client.submit("nap", {"seconds": 60})
        source = tmp_path / "source.bin"
        source.write_bytes(os.urandom(40 * 1024 * 1024))

        link = await client.files.upload_url(job.id, "frames/a b.bin")
        assert link.url.startswith(f"{edge.nginx.url}/_public/files/")
        assert await client.files.upload(job.id, source, "frames/a b.bin") == "frames/a b.bin"
        copy = await client.files.download(job.id, "frames/a b.bin", tmp_path / "copy.bin")

        assert copy.read_bytes() == source.read_bytes()
