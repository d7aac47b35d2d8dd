from collections import Counter
from tests.concurrency.test_machine import *
from tests.concurrency.test_machine import _settings
import tests.concurrency.model as m, os
from hypothesis import Phase
C=Counter()
def test_x(machine, monkeypatch):
    op=m.Lake.publish
    def publish(self,name):
        live=dict(self.present); t=self.open[name]
        moved=[k for k in t.requests if (live.get(k) and live[k].token)!=(t.base.get(k) and t.base[k].token)]
        try:
            r=op(self,name); C["published" if r else "empty", bool(moved)]+=1; return r
        except Refused as e: C["refused "+e.name]+=1; raise
    monkeypatch.setattr(m.Lake,"publish",publish)
    for n in ("create","drop","rename","undrop","protect","commit"):
        def mk(n):
            o=getattr(m.Lake,n)
            def f(self,*a):
                try: r=o(self,*a); C[n,"ok"]+=1; return r
                except Refused as e: C[n,e.name]+=1; raise
            return f
        monkeypatch.setattr(m.Lake,n,mk(n))
    lt=Warehouse._late
    def late(self,*a): C["late"]+=1; return lt(self,*a)
    monkeypatch.setattr(Warehouse,"_late",late)
    try: run_state_machine_as_test(machine, settings=settings(_settings(int(os.environ.get("N",100)), 50), phases=[Phase.generate, Phase.shrink] if os.environ.get("S") else [Phase.generate]))
    finally:
        for k,v in sorted(C.items(),key=str): print(k,v)
