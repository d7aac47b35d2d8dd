from tests.concurrency.test_machine import *
from tests.concurrency.test_machine import _settings
def test_x(machine):
    run_state_machine_as_test(machine, settings=_settings(250, 60))
