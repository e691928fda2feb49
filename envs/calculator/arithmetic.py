"""Works out expressions exactly, and nothing but expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

_BINARY: Final[Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
}
_LONGEST = 500
_MOST_BITS = 4096
_LARGEST_POWER = 1000


class BadExpression(ValueError):
    """It can't be worked out; the message says why."""


def evaluate(expression: str) -> Fraction:
    """The value of an expression of numbers, brackets and + - * / // % **.

    Raises:
        BadExpression: it is something else, too long, too large, or divides by zero.
    """
    if len(expression) > _LONGEST:
        raise BadExpression(f"expressions have at most {_LONGEST} characters")
    text = (
        expression.replace(",", "")
        .replace("^", "**")
        .replace("\N{MULTIPLICATION SIGN}", "*")
        .replace("\N{DIVISION SIGN}", "/")
        .strip()
    )
    try:
        return _value(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        raise BadExpression("division by zero") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, BadExpression):
            raise
        raise BadExpression("this is no expression of numbers, brackets and + - * / // % **") from None


def show(value: Fraction) -> str:
    """Whole numbers as they are, others as decimals."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.10g}"


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            # Decimals as they are written: 0.1 is a tenth.
            return _bounded(Fraction(repr(number)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left), _value(right)))
    raise BadExpression("only numbers, brackets and + - * / // % ** can be worked out")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > _LARGEST_POWER:
        raise BadExpression(f"exponents are whole numbers up to {_LARGEST_POWER}")
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent.numerator) > _MOST_BITS:
        raise BadExpression("the number is too large")
    return Fraction(base**exponent.numerator)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise BadExpression("the number is too large")
    return value
