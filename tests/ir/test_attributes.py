"""What is read of a TPU ``backend_config``."""

from __future__ import annotations

import pytest

from tpusim.ir.attributes import BackendConfig, CostEstimate, WindowConfig


@pytest.mark.parametrize(("stated", "cycles"), [("2129", 2129), ("0", 0), (str(2**63 - 1), 0)])
def test_the_largest_number_of_cycles_means_that_they_are_not_known(stated: str, cycles: int) -> None:
    """Libtpu 0.0.52 writes it for kernels of TPU7x; it is 146 years at 2 GHz."""
    window = BackendConfig.decode(f'{{"window_config":{{"estimated_cycles":"{stated}"}}}}').window_config
    assert window is not None
    assert window.estimated_cycles == cycles


@pytest.mark.parametrize("bounds", ['["5","0"]', '["-1","2"]'])
def test_blocks_of_nothing_are_no_tiling(bounds: str) -> None:
    """They cut no array."""
    window = BackendConfig.decode(f'{{"window_config":{{"output_window_bounds":{bounds}}}}}').window_config
    assert window is not None
    assert window.output_window_bounds == ()


@pytest.mark.parametrize(
    ("config", "ones"),
    [
        ('{"index_known_bits":[{"zeroes":"4294967294","ones":"1","bitwidth":"32"},{"zeroes":"0","ones":"0"}]}', (1, 0)),
        ('{"index_known_bits":[{}]}', (0,)),
        ('{"index_known_bits":3}', ()),
        ("{}", ()),
    ],
)
def test_known_bits_of_a_start_are_read(config, ones):
    """One number for each dimension; bits of which nothing is said are not known."""
    assert BackendConfig.decode(f'{{"indices_config":{config}}}').known_index_ones == ones


@pytest.mark.parametrize(
    ("config", "estimate"),
    [
        ('{"flops":"6","transcendentals":2,"bytes_accessed":"9","remote_bytes_transferred":0}', CostEstimate(6, 2, 9)),
        ('{"flops":-1,"bytes_accessed":true}', CostEstimate()),
        ("{}", None),
        ("7", None),
    ],
)
def test_the_stated_cost_of_a_kernel_is_read(config, estimate):
    """Numbers, or 64-bit integers as the JSON form of protocol buffers writes them."""
    assert BackendConfig.decode(f'{{"custom_call_config":{{"cost_estimate":{config}}}}}').cost_estimate == estimate


@pytest.mark.parametrize(("begin", "end", "used"), [(0, 6, 6), (32, 40, 8), (32, 32, 0), (None, 6, 6), (32, 6, 0)])
def test_scoped_memory_ends_where_the_used_size_says(begin: int | None, end: int, used: int) -> None:
    """A kernel that needs none states where its scoped memory begins, as those for v7x do that have arrays below it."""
    limit = [{"memory_space": "1", "offset": str(begin), "size": "99"}, {"memory_space": "0", "offset": "7"}]
    stated = [{"memory_space": "1", "offset": "0", "size": str(end)}]
    scoped = limit if begin is not None else None
    config = BackendConfig({"scoped_memory_configs": scoped, "used_scoped_memory_configs": stated})
    assert (config.scoped_vmem_bytes, config.scoped_vmem_end_bytes) == (used, end)


@pytest.mark.parametrize(
    "bounds", ["[1e30]", "[1" + "0" * 30 + "]", '["9223372036854775807","2"]', '["99999999999999999999"]']
)
def test_numbers_beyond_64_bits_are_none(bounds):
    """Nor is what they multiply to: no compiler counts so far, and no format that costs are kept in."""
    config = BackendConfig.decode(f'{{"window_config":{{"iteration_bounds":{bounds},"estimated_cycles":"7"}}}}')
    assert config.window_config == WindowConfig(estimated_cycles=7)


def test_scoped_memory_is_at_most_what_64_bits_hold():
    """However many parts state so much."""
    part = {"memory_space": 1, "size": 2**63 - 1}
    config = BackendConfig({"used_scoped_memory_configs": [part, part, part | {"size": -(2**63) + 1}]})
    assert (config.scoped_vmem_end_bytes, config.scoped_vmem_bytes) == (2**63 - 1, 2**63 - 1)


@pytest.mark.parametrize(("config", "emitter"), [('{"emitter":"EmitX"}', "EmitX"), ('{"emitter":3}', ""), ("{}", "")])
def test_the_emitter_of_a_convolution_is_read(config, emitter):
    """A name, or nothing."""
    assert BackendConfig.decode(f'{{"convolution_algorithm_config":{config}}}').convolution_emitter == emitter
