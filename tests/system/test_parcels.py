"""What is put in a parcel comes out the same, with its arrays left in the file."""

import mmap
import pickle

import numpy as np
import pytest
import torch

from evenhand.system.processes import parcel


def _mapped(array):
    """Where the file that an array lies in begins and ends in memory."""
    while not isinstance(array, memoryview):
        array = array.base
    assert isinstance(array.obj, mmap.mmap)
    whole = np.frombuffer(array.obj, dtype=np.uint8)
    return range(whole.ctypes.data, whole.ctypes.data + len(whole))


def test_arrays_and_tensors_come_back_as_they_were_and_stay_in_the_file(tmp_path):
    tensor = torch.arange(6000.0).reshape(60, 100)
    value = {
        "array": np.arange(5000.0),
        "fortran": np.asfortranarray(np.arange(6000).reshape(60, 100)),
        "small": np.arange(3),
        "tensor": tensor,
        "transposed": tensor.T[3:],
        "half": torch.ones(4000, dtype=torch.bfloat16),
        "network": torch.nn.Linear(50, 60),
        "nothing": torch.zeros(0, 4),
    }
    with parcel(value, tmp_path) as sent:
        found = pickle.loads(pickle.dumps(sent)).open()
        assert sent.path.stat().st_mode & 0o077 == 0
        size = sent.path.stat().st_size
        for name in ("array", "fortran", "small"):
            np.testing.assert_array_equal(found[name], value[name])
            assert found[name].flags.f_contiguous == value[name].flags.f_contiguous
        assert found["tensor"].data_ptr() in _mapped(found["array"])
        for name in ("tensor", "transposed", "half", "nothing"):
            assert torch.equal(found[name], value[name])
            assert found[name].stride() == value[name].stride()
        for mine, theirs in zip(found["network"].parameters(), value["network"].parameters(), strict=True):
            assert torch.equal(mine, theirs)
            assert mine.requires_grad
        # Memory that was shared is written once, and is shared again; what is changed is changed for one reader only.
        assert found["transposed"].untyped_storage().data_ptr() == found["tensor"].untyped_storage().data_ptr()
        assert size < 8 * 5000 + 8 * 6000 + 4 * 6000 + 2 * 4000 + 4 * 50 * 60 + 10_000
        found["tensor"][0] = -1
        assert torch.equal(sent.open()["tensor"], tensor)
    assert list(tmp_path.iterdir()) == []


def test_what_was_changed_is_not_unpickled(tmp_path):
    with parcel(["a"], tmp_path) as sent:
        content = bytearray(sent.path.read_bytes())
        content[-3] ^= 1
        sent.path.write_bytes(content)
        with pytest.raises(ValueError, match="was changed after it was written"):
            sent.open()
