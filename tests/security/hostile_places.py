"""Locations that no request may bring in, for a given root of a warehouse.

`outside(root)` are refused wherever a location may stand; `some_outside(root)` is one of each family.
`unfit(root)` lie inside the root but hold characters that a location of a table may not have; as the name of
one file, which is taken literally, they are harmless.
"""

from __future__ import annotations

from typing import Any

Places = dict[str, Any]  # by a short label; not all of them are even strings


def outside(root: str) -> Places:
    return {**elsewhere(root), **_odd_texts(root), **_unicode(root)}


def elsewhere(root: str) -> Places:
    """Those of them that differ from one kind of store to the other."""
    return {**_traversals(root), **_neighbours(root), **_other_stores(root)}


def some_outside(root: str) -> Places:
    labels = (
        "parent",
        "encoded dots",
        "sibling prefix",
        "the other store",
        "metadata service",
        "nul",
        "fullwidth dots",
    )
    places = outside(root)
    return {label: places[label] for label in labels}


def _traversals(root: str) -> Places:
    return {
        "parent": f"{root}/../evil",
        "parent twice": f"{root}/ns/../../evil",
        "parent at the end": f"{root}/ns/..",
        "parent and back": f"{root}/../{root.rsplit('/', 1)[1]}/t",
        "dot": f"{root}/./t",
        "dot at the end": f"{root}/t/.",
        "double slash": f"{root}//t",
        "double slash inside": f"{root}/ns//t",
        "double slash at the end": f"{root}/t//",
        "encoded dots": f"{root}/%2e%2e/evil",
        "encoded dots, capitals": f"{root}/%2E%2E/evil",
        "half encoded dots": f"{root}/.%2e/evil",
        "encoded dot": f"{root}/%2e/t",
        "encoded twice": f"{root}/%252e%252e/evil",
        "encoded thrice": f"{root}/%25252e%25252e/evil",
        "encoded slash behind dots": f"{root}/..%2fevil",
        "encoded slash behind dots, capitals": f"{root}/..%2Fevil",
        "encoded backslash behind dots": f"{root}/..%5cevil",
        "backslash": f"{root}\\..\\evil",
        "backslash inside": f"{root}/..\\evil",
    }


def _neighbours(root: str) -> Places:
    above, name = root.rsplit("/", 1)
    return {
        "sibling prefix": f"{root}-evil/t",
        "sibling prefix with a digit": f"{root}2/t",
        "sibling prefix with a dot": f"{root}.evil/t",
        "the folder above": above,
        "another folder above": f"{above}/other/t",
        "capitals": f"{above}/{name.upper()}/t",
        "upper-case text": root.upper() + "/T",
    }


def _other_stores(root: str) -> Places:
    path = root.split("://", 1)[1].lstrip("/")
    other_scheme = f"file:///{path}/t" if root.startswith("s3") else f"s3://{path}/t"
    return {
        "the other store": other_scheme,
        "another bucket": f"s3://lake-evil/{path}/t",
        "user in the host": f"s3://user:pass@{path}/t",
        "bucket as user": f"s3://lake@evil.example/{path}/t",
        "port": "s3://lake:9000/wh/t",
        "host in a file location": f"file://evil.example/{path}/t",
        "system file": "file:///etc/passwd",
        "system path": "/etc/cron.d/evil",
        "one slash": "file:/etc/evil",
        "four slashes": f"file:////{path}/t",
        "process": "file:///proc/self/environ",
        "metadata service": "http://169.254.169.254/latest/meta-data/iam",
        "loopback": "http://127.0.0.1:8181/v1/config",
        "https": f"https://{path}/t",
        "google": f"gs://{path}/t",
        "azure": f"abfss://lake@evil.example/{path}/t",
        "hadoop": f"hdfs://evil.example/{path}/t",
        "jar": f"jar:file:///{path}/t!/x",
        "memory": "memory://t",
        "data": "data:text/plain,evil",
    }


def _odd_texts(root: str) -> Places:
    return {
        "empty": "",
        "space": " ",
        "space in front": f" {root}/t",
        "space behind": f"{root}/t ",
        "relative": "wh/t",
        "network path": f"//{root.split('://', 1)[1].lstrip('/')}/t",
        "no slashes behind the scheme": "file:t",
        "nul": f"{root}/t\x00",
        "nul before a sound ending": f"{root}-evil\x00{root}",
        "line feed": f"{root}/t\nx",
        "carriage return": f"{root}/t\r\nHost: evil",
        "delete": f"{root}/t\x7f",
        "query": f"{root}/t?acl",
        "query with a way out": f"{root}/t?x=/../evil",
        "fragment": f"{root}/t#x",
        "single quote": f"{root}/t' || true || '",
        "double quote": f'{root}/t"',
        "dollar": f"{root}/${{aws:username}}",
        "brackets": f"{root}/[a-z]",
        "pipe": f"{root}/t|id",
        "number": 7,
        "list": [f"{root}/t"],
        "object": {"location": f"{root}/t"},
        "too long": f"{root}/" + "a" * 2000,
    }


def _unicode(root: str) -> Places:
    return {
        "fullwidth dots": f"{root}/\uff0e\uff0e/evil",
        "fullwidth slash": f"{root}\uff0f..\uff0fevil",
        "one dot leader": f"{root}/\u2024\u2024/evil",
        "not composed": f"{root}/e\u0301",
        "zero width space": f"{root}/t\u200b",
        "right to left": f"{root}/t\u202egnp.exe",
        "look-alike of the root": f"{root[:-1]}\u04bb/t",
        "next line": f"{root}/t\u0085",
        "line separator": f"{root}/t\u2028",
    }


def unfit(root: str) -> Places:
    return {
        "star": f"{root}/*",
        "star above a name": f"{root}/*/t",
        "star in a name": f"{root}/f*.t1",
        "percent": f"{root}/100%",
        "encoded slash": f"{root}/a%2fb",
        "encoded nul": f"{root}/t%00",
        "encoded query": f"{root}/t%3facl",
    }
