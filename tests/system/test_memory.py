import gc
import sys

from evenhand.system.threads import available_memory, quick_imports


def test_nothing_is_collected_while_modules_are_imported():
    assert gc.isenabled()
    n_before = gc.get_freeze_count()
    with quick_imports():
        assert not gc.isenabled()
        kept = [object() for _ in range(10)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > n_before
    gc.unfreeze()
    del kept


def test_who_turned_collection_off_finds_it_off():
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


def test_available_memory_is_that_of_linux():
    if sys.platform == "linux":
        assert 2**20 < available_memory() < 2**50
    else:
        assert available_memory() is None
