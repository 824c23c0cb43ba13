# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of Ansible's variables as plain data, which JSON can write and read back unchanged.

YAML, Jinja and Ansible give values that JSON does not know (dates, sets, binary data, NaN), or gives in a form of their own (the tagged and
lazy types of ansible-core 2.19, encrypted strings). All variables pass through `plain` where they enter: nothing behind it needs to know.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import math
import typing as t

from ansible.errors import AnsibleError

try:
    from ansible.parsing.vault import VaultHelper
except ImportError:  # ansible-core 2.18: encrypted strings have a type of their own until they are read
    VaultHelper = None
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

# What every reader of JSON takes for a whole number: signed, or unsigned, of 64 bits.
SMALLEST, LARGEST = -(2**63), 2**64 - 1
# No documented variable has values nested more than ten deep. A structure of YAML that holds itself has no end.
DEEPEST = 100


class PlainError(RunError):
    """A value of a variable that is no data: names the variable and the place in it, what was found and what is expected."""


def plain(value: t.Any, where: str) -> t.Any:
    """Return a value as None, bool, int, float, str, list and dict of such, the keys of which are str. Dates and times become their text in
    the form of ISO 8601, tuples and sets lists (a set sorted), encrypted strings what they hold. Raises PlainError for all else; `where`
    is the variable as a message calls it. The message shows no value, which may be secret."""
    return _plain(value, where, 0)


def vaulted(value: t.Any, where: str) -> list[str]:
    """Return the places in a value of all texts that ansible-vault had encrypted, each as a message calls it. A text that was made of one,
    or that stands in a file that is encrypted as a whole, has no sign of it."""
    return list(_vaulted(value, where, 0))


def _vaulted(value: t.Any, where: str, depth: int) -> t.Iterator[str]:
    if _is_encrypted(value) or (VaultHelper is not None and VaultHelper.get_ciphertext(value, with_tags=False) is not None):
        yield where
    elif depth > DEEPEST:
        return
    elif isinstance(value, t.Mapping):
        for name, inner in value.items():
            yield from _vaulted(inner, f"{where}.{name}", depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, inner in enumerate(value):
            yield from _vaulted(inner, f"{where}[{number}]", depth + 1)


def _plain(value: t.Any, where: str, depth: int) -> t.Any:
    if depth > DEEPEST:
        raise PlainError(f"{where}: found a value nested more than {DEEPEST} deep, expected one that does not hold itself")
    scalar = _scalar(value, where)
    if scalar is not _NO_SCALAR:
        return scalar
    if not isinstance(value, (t.Mapping, list, tuple, set, frozenset)):
        raise PlainError(f"{where}: found {_kind(value)}, expected text, a number, true or false, a date, a list or a mapping")
    try:
        # Ansible decrypts and templates what is in a container of its own when it is read.
        if isinstance(value, t.Mapping):
            return _mapping(value, where, depth)
        return _list(value, where, depth)
    except AnsibleError as error:
        raise PlainError(f"{where}: {' '.join(str(error).split())}") from error


_NO_SCALAR = object()


def _scalar(value: t.Any, where: str) -> t.Any:
    """Return the plain form of a value that is no container, `_NO_SCALAR` if it is neither plain nor can be made so."""
    if value is None or isinstance(value, bool):
        return value
    if _is_encrypted(value):
        value = _decrypted(value, where)
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int):
        number = int(value)
        if not SMALLEST <= number <= LARGEST:
            raise PlainError(f"{where}: found a whole number of {number.bit_length()} bits, expected at most 64; quote what is text")
        return number
    if isinstance(value, float):
        if not math.isfinite(value):
            raise PlainError(f"{where}: found {float(value)!r}, expected a finite number")
        return float(value)
    if isinstance(value, (datetime.date, datetime.time)):  # a datetime is a date
        return value.isoformat()
    return _NO_SCALAR


def _text(value: str, where: str) -> str:
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PlainError(f"{where}: found text that is no Unicode at character {error.start}, expected UTF-8") from error
    return text


def _mapping(value: t.Mapping[t.Any, t.Any], where: str, depth: int) -> dict[str, t.Any]:
    made: dict[str, t.Any] = {}
    for key, inner in value.items():
        name = _key(key, where)
        if name in made:
            raise PlainError(f"{where}: found the key {name!r} twice, as text and as a number or date, expected it once")
        made[name] = _plain(inner, f"{where}.{name}", depth + 1)
    return made


def _key(key: t.Any, where: str) -> str:
    """Return the key of a mapping as text. YAML reads `on`, `no`, `~` and `1.10` as something that cannot be written back as it was."""
    if isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool)) or isinstance(key, datetime.date):
        return str(_scalar(key, where))
    found = repr(key) if key is None or isinstance(key, (bool, float)) else _kind(key)
    raise PlainError(f"{where}: found the key {found}, expected text: quote it")


def _list(value: t.Iterable[t.Any], where: str, depth: int) -> list[t.Any]:
    made = [_plain(inner, f"{where}[{number}]", depth + 1) for number, inner in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        made.sort(key=lambda inner: (type(inner).__name__, repr(inner)))
    return made


def _is_encrypted(value: t.Any) -> bool:
    """Return True for a string of ansible-vault: EncryptedString of ansible-core 2.19 and later, AnsibleVaultEncryptedUnicode before."""
    return bool(getattr(type(value), "__ENCRYPTED__", False)) or any(of.__name__ == "EncryptedString" for of in type(value).__mro__)


def _decrypted(value: t.Any, where: str) -> str:
    try:
        return str(value)
    except Exception as error:  # of ansible-vault, by version
        raise PlainError(f"{where}: found an encrypted text that cannot be decrypted: {' '.join(str(error).split())}") from error


def _kind(value: t.Any) -> str:
    """Return what a value is, in words for people."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "binary data"
    if isinstance(value, datetime.timedelta):
        return "a duration"
    if "undefined" in type(value).__name__.lower() or any(of.__name__ == "Marker" for of in type(value).__mro__):
        return "an undefined value"
    return f"a value of type {type(value).__name__.lstrip('_')}"
