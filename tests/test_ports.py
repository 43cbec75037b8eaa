import socket
import subprocess
import sys

import pytest

from tests.ports import BLOCK, Block, free_port

#: Other processes take the lowest blocks first and never come up here.
HIGH = 30_000


def test_a_port_is_handed_out_again_after_all_the_others_only() -> None:
    block = Block()

    taken = [block.take() for _ in range(2 * (BLOCK - 1))]

    block.close()
    assert len(set(taken)) == BLOCK - 1
    assert taken[: BLOCK - 1] == taken[BLOCK - 1 :]


def test_a_port_where_somebody_listens_is_passed_over() -> None:
    block = Block()
    first = block.take()

    with socket.create_server(("127.0.0.1", first + 1)):
        second = block.take()

    block.close()
    assert second == first + 2


def test_two_processes_have_different_blocks() -> None:
    ours = free_port()
    program = "from tests.ports import free_port; print(free_port())"

    theirs = int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)

    assert theirs // BLOCK != ours // BLOCK


def test_where_no_block_is_free_it_says_so_and_one_that_is_given_back_is_free() -> None:
    block = Block(HIGH)
    low = block.take() // BLOCK * BLOCK

    with pytest.raises(RuntimeError, match=f"expected a free block of {BLOCK} ports between {low}"):
        Block(low, low + BLOCK)

    block.close()
    Block(low, low + BLOCK).close()
