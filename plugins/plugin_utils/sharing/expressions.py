# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The expressions of cases, such as `runtime(q25) > runtime(q50) > runtime(q75)`, and their evaluation on evidence.

An expression has comparisons, arithmetic, `and`, `or`, `not` and calls of the vocabulary. Names inside of a call stand for groups of pods,
samples and changes; other names stand for parameters. The result is true, false or unknown. A value that was not measured makes the result
unknown, unless the other values settle it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import syntax
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError

Value = float | bool
# Returns the value of a word of the vocabulary for its arguments. Raises Absent if it was not measured.
Ask = t.Callable[[str, t.Sequence[str | float]], Value]

_COMPARE: dict[type[ast.cmpop], tuple[str, t.Callable[[t.Any, t.Any], bool]]] = {
    ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne),
}  # fmt: skip
_BINARY: dict[type[ast.operator], tuple[str, t.Callable[[t.Any, t.Any], t.Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul), ast.Div: ("/", operator.truediv),
}  # fmt: skip


class Absent(AcceptanceError):
    """A value that an expression needs was not measured; the message says why."""


class ExpressionError(AcceptanceError, ValueError):
    """A text is no expression. The message says where."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of an expression: `holds` is None if unknown, `words` is the expression with its numbers, `lacking` has the reason for
    each number that is missing."""

    holds: bool | None
    words: str
    lacking: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a word of the vocabulary. Names among `args` are texts."""

    word: str
    args: tuple[str | float, ...]


def parse(text: str) -> ast.expr:
    """Return the syntax tree of an expression. Raise ExpressionError for anything else."""
    try:
        tree: ast.expr = syntax.tree(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ExpressionError(f"found {text!r}, which is no expression: {error}") from error
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ExpressionError(f"found {text!r}: {part} is not known")
        if isinstance(node, ast.Constant) and (isinstance(node.value, bool) or not isinstance(node.value, (int, float, str))):
            raise ExpressionError(f"found {text!r}: {node.value!r} is neither a number nor a text")
    _calls(tree, text)
    return tree


_ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.BinOp, ast.Call, ast.Name, ast.Load, ast.Constant,
    *_COMPARE, *_BINARY,
)  # fmt: skip


def calls(tree: ast.expr) -> list[Call]:
    """Return the calls in an expression."""
    return _calls(tree, "")


def names(tree: ast.expr) -> list[str]:
    """Return the parameters that an expression names outside of calls."""
    inside = {id(node) for call in ast.walk(tree) if isinstance(call, ast.Call) for node in (call.func, *call.args)}
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in inside]


def _calls(tree: ast.expr, text: str) -> list[Call]:
    result = []
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
            result.append(Call(node.func.id, tuple(args)))
    return result


def evaluate(text: str, ask: Ask, parameters: t.Mapping[str, float]) -> Outcome:
    """Return the outcome of an expression."""
    return _Evaluation(ask, parameters).truth(parse(text))


def value(text: str, ask: Ask, parameters: t.Mapping[str, float]) -> float:
    """Return the number of an expression. Raise Absent if it was not measured."""
    number, _said = _Evaluation(ask, parameters).number(parse(text))
    return float(number)


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
            return dataclasses.replace(inner, holds=None if inner.holds is None else not inner.holds, words=f"not ({inner.words})")
        if isinstance(node, ast.Compare):
            return self._compared(node)
        try:
            number, words = self.number(node)
        except Absent as error:
            return Outcome(None, f"{ast.unparse(node)}=?", (str(error),))
        return Outcome(bool(number), words)

    def _joined(self, node: ast.BoolOp) -> Outcome:
        parts = [self.truth(operand) for operand in node.values]
        settles = isinstance(node.op, ast.Or)  # one true part settles an `or`, one false part an `and`
        word = " or " if settles else " and "
        both = zip(parts, node.values, strict=True)
        words = word.join(f"({part.words})" if isinstance(operand, ast.BoolOp) else part.words for part, operand in both)
        if any(part.holds is settles for part in parts):
            return Outcome(settles, words)
        lacking = tuple(dict.fromkeys(reason for part in parts if part.holds is None for reason in part.lacking))
        return Outcome(None if lacking else not settles, words, lacking)

    def _compared(self, node: ast.Compare) -> Outcome:
        sides: list[tuple[Value | None, str]] = []
        lacking: list[str] = []
        for operand in (node.left, *node.comparators):
            try:
                sides.append(self.number(operand))
            except Absent as error:
                sides.append((None, f"{ast.unparse(operand)}=?"))
                lacking.append(str(error))
        words, holds = sides[0][1], True
        for how, (left, _said), (right, right_words) in zip(node.ops, sides, sides[1:], strict=False):
            sign, compare = _COMPARE[type(how)]
            words += f" {sign} {right_words}"
            if left is not None and right is not None:
                holds = holds and compare(left, right)
        if not holds:
            return Outcome(False, words)
        return Outcome(None if lacking else True, words, tuple(dict.fromkeys(lacking)))

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
                result = self.ask(call.word, [self._argument(argument) for argument in call.args])
            except ArithmeticError as error:  # a pod may say that it took no time at all
                raise Absent(f"{ast.unparse(node)} cannot be computed: {error}") from error
            if isinstance(result, float) and not math.isfinite(result):
                raise Absent(f"{ast.unparse(node)} is {result}")
            return result, f"{ast.unparse(node)}={shown(result)}"
        if isinstance(node, ast.BinOp):
            (left, left_words), (right, right_words) = self.number(node.left), self.number(node.right)
            sign, of = _BINARY[type(node.op)]
            if sign == "/" and not right:
                raise Absent(f"{ast.unparse(node.right)} is 0")
            inner = right_words if not isinstance(node.right, ast.BinOp) else f"({right_words})"
            return of(
                left, right
            ), f"{left_words if not isinstance(node.left, ast.BinOp) or sign in '+-' else f'({left_words})'} {sign} {inner}"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner_value, inner = self.number(node.operand)
            return -inner_value, f"-{inner}"
        truth = self.truth(node)
        if truth.holds is None:
            raise Absent("; ".join(truth.lacking))
        return truth.holds, truth.words

    def _argument(self, argument: str | float) -> str | float:
        return self.parameters.get(argument, argument) if isinstance(argument, str) else argument


def shown(number: Value) -> str:
    """Return a number as text: 4 significant digits, whole numbers in full."""
    if isinstance(number, bool):
        return "true" if number else "false"
    if float(number).is_integer() and abs(number) < 1e15:
        return str(int(number))
    return f"{number:.4g}"
