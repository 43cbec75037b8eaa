from collections.abc import Iterator
from itertools import count

import pytest

from regista.payloads.s3 import S3Service
from regista.testing.conformance.payloads import PayloadsConformance, PayloadsFactory
from tests.s3_server import S3Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from serving()


_places = count(1)


class TestS3Service(PayloadsConformance):
    @pytest.fixture
    def payloads_factory(self, server: S3Server) -> PayloadsFactory:
        place = f"test-{next(_places)}"
        return lambda: S3Service("payloads", place, server.config())
