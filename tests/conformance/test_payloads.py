from pathlib import Path

import pytest

from regista.payloads.directory import DirectoryPayloads
from regista.payloads.memory import MemoryPayloads
from regista.testing.conformance.payloads import PayloadsConformance, PayloadsFactory


class TestMemoryPayloads(PayloadsConformance):
    @pytest.fixture
    def payloads_factory(self) -> PayloadsFactory:
        return MemoryPayloads


class TestDirectoryPayloads(PayloadsConformance):
    @pytest.fixture
    def payloads_factory(self, tmp_path: Path) -> PayloadsFactory:
        return lambda: DirectoryPayloads(tmp_path / "payloads")
