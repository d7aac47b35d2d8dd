"""Requests that wait for a job are woken by what happens in their own process."""

from __future__ import annotations

import asyncio
import threading
import time

from ingest.landing.job_staging import Wakeup

LONG_S = 60.0


def waited_s(wakeup: Wakeup, count: int, timeout_s: float) -> float:
    began_s = time.monotonic()
    asyncio.run(wakeup.wait(count, timeout_s))
    return time.monotonic() - began_s


def test_a_call_from_another_thread_wakes_all_who_wait() -> None:
    wakeup = Wakeup()

    async def run() -> None:
        waiting = [asyncio.create_task(wakeup.wait(0, LONG_S)) for _ in range(3)]
        await asyncio.sleep(0)
        threading.Thread(target=wakeup.wake).start()
        await asyncio.wait_for(asyncio.gather(*waiting), LONG_S / 2)

    asyncio.run(run())


def test_what_happens_between_a_look_and_the_wait_is_not_missed() -> None:
    wakeup = Wakeup()
    count = wakeup.count
    wakeup.wake()
    assert waited_s(wakeup, count, LONG_S) < LONG_S / 2


def test_without_a_call_the_time_is_waited() -> None:
    wakeup = Wakeup()
    assert waited_s(wakeup, wakeup.count, 0.05) >= 0.05
    wakeup.wake()  # the loop of the one who waited has ended
