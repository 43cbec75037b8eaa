from pathlib import Path

import pytest

from regista.payloads.local import LocalPayloads
from regista.payloads.memory import MemoryPayloads
from regista.testing.conformance.payloads import PayloadsConformance, PayloadsFactory


class TestMemoryPayloads(PayloadsConformance):
    @pytest.fixture
    def payloads_factory(self) -> PayloadsFactory:
        return MemoryPayloads


class TestLocalPayloads(PayloadsConformance):
    @pytest.fixture
    def payloads_factory(self, tmp_path: Path) -> PayloadsFactory:
        return lambda: LocalPayloads(tmp_path / "payloads")
