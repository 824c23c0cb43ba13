# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The expressions of cases: `runtime(q25) > runtime(q50) > runtime(q75)`, held to what was seen.

An expression is a comparison, arithmetic, `and`, `or`, `not` and calls of the vocabulary; names stand for groups of pods, samples and
changes inside of a call, and for parameters elsewhere. It holds, does not hold, or nobody knows: what was not measured makes it unknown,
unless the rest settles it alone.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
import typing as t

Value = float | bool
# A word of the vocabulary, ready to be asked: values of its arguments in, its value out. Absent where it was not measured.
Ask = t.Callable[[str, t.Sequence[str | float]], Value]

_COMPARE: dict[type[ast.cmpop], tuple[str, t.Callable[[t.Any, t.Any], bool]]] = {
    ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne),
}  # fmt: skip
_BINARY: dict[type[ast.operator], tuple[str, t.Callable[[t.Any, t.Any], t.Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul), ast.Div: ("/", operator.truediv),
}  # fmt: skip


class Absent(Exception):
    """A value that an expression needs was not measured; the message says why."""


class ExpressionError(ValueError):
    """A text is no expression; says where."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """`holds` is None where nobody knows. `said` is the expression with its numbers, `lacking` why they are not all there."""

    holds: bool | None
    said: str
    lacking: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Call:
    """A word of the vocabulary as an expression uses it; names among `args` are texts."""

    word: str
    args: tuple[str | float, ...]


def parse(text: str) -> ast.expr:
    """ExpressionError for anything but an expression of this language."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ExpressionError(f"found {text!r}, which is no expression: {error}") from error
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            what = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ExpressionError(f"found {text!r}: {what} is not known")
        if isinstance(node, ast.Constant) and (isinstance(node.value, bool) or not isinstance(node.value, (int, float, str))):
            raise ExpressionError(f"found {text!r}: {node.value!r} is neither a number nor a text")
    _calls(tree, text)
    return tree


_ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.BinOp, ast.Call, ast.Name, ast.Load, ast.Constant,
    *_COMPARE, *_BINARY,
)  # fmt: skip


def calls(tree: ast.expr) -> list[Call]:
    """The words that an expression asks for."""
    return _calls(tree, "")


def names(tree: ast.expr) -> list[str]:
    """The parameters that it names outside of calls."""
    inside = {id(node) for call in ast.walk(tree) if isinstance(call, ast.Call) for node in (call.func, *call.args)}
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in inside]


def _calls(tree: ast.expr, text: str) -> list[Call]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.keywords:
                raise ExpressionError(f"found {text!r}: expected calls like succeeded(main)")
            args: list[str | float] = []
            for arg in node.args:
                if isinstance(arg, ast.Name):
                    args.append(arg.id)
                elif isinstance(arg, ast.Constant):
                    args.append(arg.value if isinstance(arg.value, str) else float(t.cast(float, arg.value)))
                else:
                    raise ExpressionError(f"found {text!r}: arguments of {node.func.id} are names, numbers and texts")
            found.append(Call(node.func.id, tuple(args)))
    return found


def evaluate(text: str, ask: Ask, parameters: t.Mapping[str, float]) -> Outcome:
    """Hold an expression to what was seen."""
    return _Evaluation(ask, parameters).truth(parse(text))


def value(text: str, ask: Ask, parameters: t.Mapping[str, float]) -> float:
    """The number of an expression. Absent where it was not measured."""
    found, _said = _Evaluation(ask, parameters).number(parse(text))
    return float(found)


class _Evaluation:
    def __init__(self, ask: Ask, parameters: t.Mapping[str, float]) -> None:
        self.ask = ask
        self.parameters = parameters

    # Three values --------------------------------------------------------------------------------------------------

    def truth(self, node: ast.expr) -> Outcome:
        if isinstance(node, ast.BoolOp):
            return self._joined(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return dataclasses.replace(inner, holds=None if inner.holds is None else not inner.holds, said=f"not ({inner.said})")
        if isinstance(node, ast.Compare):
            return self._compared(node)
        try:
            found, said = self.number(node)
        except Absent as error:
            return Outcome(None, f"{ast.unparse(node)}=?", (str(error),))
        return Outcome(bool(found), said)

    def _joined(self, node: ast.BoolOp) -> Outcome:
        parts = [self.truth(one) for one in node.values]
        settles = isinstance(node.op, ast.Or)  # one that holds settles an `or`, one that does not an `and`
        word = " or " if settles else " and "
        both = zip(parts, node.values, strict=True)
        said = word.join(f"({part.said})" if isinstance(one, ast.BoolOp) else part.said for part, one in both)
        if any(part.holds is settles for part in parts):
            return Outcome(settles, said)
        lacking = tuple(dict.fromkeys(reason for part in parts if part.holds is None for reason in part.lacking))
        return Outcome(None if lacking else not settles, said, lacking)

    def _compared(self, node: ast.Compare) -> Outcome:
        found: list[tuple[Value | None, str]] = []
        lacking: list[str] = []
        for one in (node.left, *node.comparators):
            try:
                found.append(self.number(one))
            except Absent as error:
                found.append((None, f"{ast.unparse(one)}=?"))
                lacking.append(str(error))
        said, holds = found[0][1], True
        for how, (left, _said), (right, words) in zip(node.ops, found, found[1:], strict=False):
            sign, compare = _COMPARE[type(how)]
            said += f" {sign} {words}"
            if left is not None and right is not None:
                holds = holds and compare(left, right)
        if not holds:
            return Outcome(False, said)
        return Outcome(None if lacking else True, said, tuple(dict.fromkeys(lacking)))

    # Numbers -------------------------------------------------------------------------------------------------------

    def number(self, node: ast.expr) -> tuple[Value, str]:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                raise Absent(f"the text {node.value!r} is no number")
            return t.cast("Value", node.value), shown(t.cast("Value", node.value))
        if isinstance(node, ast.Name):
            if node.id not in self.parameters:
                raise Absent(f"{node.id} is not defined")
            return self.parameters[node.id], f"{node.id}={shown(self.parameters[node.id])}"
        if isinstance(node, ast.Call):
            call = _calls(node, "")[0]
            try:
                found = self.ask(call.word, [self._argument(one) for one in call.args])
            except ArithmeticError as error:  # a pod may say that it took no time at all
                raise Absent(f"{ast.unparse(node)} cannot be computed: {error}") from error
            if isinstance(found, float) and not math.isfinite(found):
                raise Absent(f"{ast.unparse(node)} is {found}")
            return found, f"{ast.unparse(node)}={shown(found)}"
        if isinstance(node, ast.BinOp):
            (left, one), (right, other) = self.number(node.left), self.number(node.right)
            sign, of = _BINARY[type(node.op)]
            if sign == "/" and not right:
                raise Absent(f"{ast.unparse(node.right)} is 0")
            inner = other if not isinstance(node.right, ast.BinOp) else f"({other})"
            return of(left, right), f"{one if not isinstance(node.left, ast.BinOp) or sign in '+-' else f'({one})'} {sign} {inner}"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner_value, inner = self.number(node.operand)
            return -inner_value, f"-{inner}"
        truth = self.truth(node)
        if truth.holds is None:
            raise Absent("; ".join(truth.lacking))
        return truth.holds, truth.said

    def _argument(self, given: str | float) -> str | float:
        return self.parameters.get(given, given) if isinstance(given, str) else given


def shown(number: Value) -> str:
    """A number as people read it; amounts of memory stay whole."""
    if isinstance(number, bool):
        return "true" if number else "false"
    if float(number).is_integer() and abs(number) < 1e15:
        return str(int(number))
    return f"{number:.4g}"
