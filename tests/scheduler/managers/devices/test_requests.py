"""What a pod may ask of devices, and what that comes down to."""

import pytest

from holdfast.scheduler.managers.devices import DeviceRequestError, Share, device_request

GPU, SHARED = "koordinator.sh/gpu", "koordinator.sh/gpu.shared"
CORE, MEMORY = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory"
RATIO = "koordinator.sh/gpu-memory-ratio"
RDMA, FPGA = "koordinator.sh/rdma", "koordinator.sh/fpga"
GIB = 2**30
MIX = "invalid resource device requests: "


@pytest.mark.parametrize(
    ("asked", "count", "each", "shared"),
    [
        ({"nvidia.com/gpu": 1}, 1, (100, 0, 100), False),
        ({"nvidia.com/gpu": 4}, 4, (100, 0, 100), False),
        ({"amd.com/gpu": 2}, 2, (100, 0, 100), False),
        ({"dcu.com/gpu": 1}, 1, (100, 0, 100), False),
        ({GPU: 50}, 1, (50, 0, 50), True),
        ({GPU: 100}, 1, (100, 0, 100), False),
        ({GPU: 300}, 3, (100, 0, 100), False),
        ({MEMORY: 8 * GIB}, 1, (0, 8 * GIB, 0), True),
        ({RATIO: 30}, 1, (0, 0, 30), True),
        ({RATIO: 200}, 2, (0, 0, 100), False),
        ({CORE: 20, MEMORY: GIB}, 1, (20, GIB, 0), True),
        ({CORE: 20, RATIO: 60}, 1, (20, 0, 60), True),
        ({CORE: 200, RATIO: 200}, 2, (100, 0, 100), False),
        ({SHARED: 2, RATIO: 100}, 2, (0, 0, 50), True),
        ({SHARED: 2, CORE: 60, RATIO: 100}, 2, (30, 0, 50), True),
        ({SHARED: 4, MEMORY: 8 * GIB}, 4, (0, 2 * GIB, 0), True),
        ({SHARED: 2, CORE: 100, MEMORY: 8 * GIB}, 2, (50, 4 * GIB, 0), True),
        ({SHARED: 1, CORE: 100, RATIO: 100}, 1, (100, 0, 100), False),
    ],
)
def test_gpus_are_asked_for_in_many_ways(
    asked: dict[str, int], count: int, each: tuple[int, ...], shared: bool
) -> None:
    assert device_request({"cpu": 1000, **asked}) == (Share("gpu", count, each, shared),)


@pytest.mark.parametrize(
    ("asked", "shares"),
    [
        ({RDMA: 50}, [Share("rdma", 1, (50,), True)]),
        ({RDMA: 100}, [Share("rdma", 1, (100,), False)]),
        ({FPGA: 300}, [Share("fpga", 3, (100,), False)]),
        ({GPU: 100, RDMA: 1}, [Share("gpu", 1, (100, 0, 100), False), Share("rdma", 1, (1,), True)]),
        ({}, []),
        ({GPU: 0}, []),
        ({"example.com/thing": 3}, []),
    ],
)
def test_cards_are_asked_for_in_percent(asked: dict[str, int], shares: list[Share]) -> None:
    assert list(device_request({"cpu": 1000, **asked})) == shares


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({GPU: 150}, "invalid resource unit koordinator.sh/gpu: 150"),
        ({RDMA: 101}, "invalid resource unit koordinator.sh/rdma: 101"),
        ({FPGA: 250}, "invalid resource unit koordinator.sh/fpga: 250"),
        (
            {"nvidia.com/gpu": 1, GPU: 100},
            MIX + "[nvidia.com/gpu koordinator.sh/gpu]",
        ),
        ({CORE: 50}, MIX + "[koordinator.sh/gpu-core]"),
        (
            {CORE: 150, RATIO: 100},
            MIX + "[koordinator.sh/gpu-core koordinator.sh/gpu-memory-ratio]",
        ),
        ({RATIO: 150}, MIX + "[koordinator.sh/gpu-memory-ratio]"),
        (
            {MEMORY: GIB, RATIO: 50},
            MIX + "[koordinator.sh/gpu-memory koordinator.sh/gpu-memory-ratio]",
        ),
        ({SHARED: 2}, MIX + "[koordinator.sh/gpu.shared]"),
        (
            {SHARED: 2, RATIO: 51},
            MIX + "[koordinator.sh/gpu.shared koordinator.sh/gpu-memory-ratio]",
        ),
        (
            {SHARED: 2, RATIO: 300},
            MIX + "[koordinator.sh/gpu.shared koordinator.sh/gpu-memory-ratio]",
        ),
        (
            {"nvidia.com/gpu": 1, "amd.com/gpu": 1},
            MIX + "[nvidia.com/gpu amd.com/gpu]",
        ),
    ],
)
def test_what_makes_no_sense_is_said_so(asked: dict[str, int], message: str) -> None:
    with pytest.raises(DeviceRequestError) as error:
        device_request(asked)
    assert str(error.value) == message
