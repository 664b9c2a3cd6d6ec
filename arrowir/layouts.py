"""Layouts: the ordered members of a JSON object and where the value of each is.

A layout is a JSON list of strings. The first character of each says where the value is, the rest is the key:

``c`` in a column or in child rows;  ``n`` an explicit null;  ``r`` as JSON text in the row's `extra`;
``p`` child rows, written as a list of pairs (argument maps);  ``a`` child rows, written as a bare list
(`nki_functions`).

Layouts are interned, so what a pass does to them is done once for each distinct one (`Pool.map`).
"""

import json
from functools import lru_cache

from arrowir.store import Ids, Pool

COLUMN, NULL, RAW, PAIRS, LIST = "c", "n", "r", "p", "a"


@lru_cache(65536)
def entries(layout: str) -> tuple[tuple[str, str], ...]:
    """Return the members of a layout as (source, key), in order."""
    return tuple((entry[0], entry[1:]) for entry in json.loads(layout))


def layout(members: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> str:
    """Return the text of a layout from its members."""
    return json.dumps([source + key for source, key in members], ensure_ascii=False, separators=(",", ":"))


def of(keys: list[str]) -> str:
    """Return the layout of a new object: sorted keys, all in columns (rule F6)."""
    return layout([(COLUMN, key) for key in sorted(keys)])


def source(text: str, key: str) -> str | None:
    """Return where a layout says that the value of a key is, or None where the key is absent."""
    for where, name in entries(text):
        if name == key:
            return where
    return None


def with_key(text: str, key: str, where: str = COLUMN) -> str:
    """Add a key in its place, or set where its value is (rule F6: in order if the keys are sorted, else last)."""
    members = list(entries(text))
    keys = [name for _, name in members]
    if key in keys:
        members[keys.index(key)] = (where, key)
        return layout(members)
    if keys == sorted(keys):
        place = sum(name < key for name in keys)
        members.insert(place, (where, key))
    else:
        members.append((where, key))
    return layout(members)


def without_key(text: str, key: str) -> str:
    """Remove a key."""
    return layout([(where, name) for where, name in entries(text) if name != key])


def add_key(pool: Pool, ids: Ids, key: str, where: str = COLUMN) -> Ids:
    """Add a key to the layouts of many rows."""
    return pool.map(ids, lambda text: with_key(text, key, where), name=("add", key, where))


def remove_key(pool: Pool, ids: Ids, key: str) -> Ids:
    """Remove a key from the layouts of many rows."""
    return pool.map(ids, lambda text: without_key(text, key), name=("remove", key))


def edit_keys(pool: Pool, ids: Ids, add: list[str], remove: list[str]) -> Ids:
    """Remove keys from the layouts of many rows and add others; whether keys are sorted is judged before (rule F6)."""
    if not add and not remove:
        return ids

    def change(text: str) -> str:
        members = list(entries(text))
        keys = [name for _, name in members]
        ordered = keys == sorted(keys)
        members = [m for m in members if m[1] not in remove]
        new = [(COLUMN, key) for key in sorted(add) if key not in keys]
        members = [(COLUMN, name) if name in add else (where, name) for where, name in members] + new
        return layout(sorted(members, key=lambda m: m[1]) if ordered else members)

    return pool.map(ids, change, name=("edit", tuple(add), tuple(remove)))
