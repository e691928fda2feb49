"""An agent with a calculator, in thirty lines."""

import ast
import operator

import agentfly as af

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def value(node: ast.AST) -> int:
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](value(node.left), value(node.right))
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    raise ValueError("only whole numbers with + - *")


@af.tool
def calculator(expression: str) -> str:
    """Work out an expression.

    Args:
        expression: whole numbers with + - *, such as 12*7.
    """
    return str(value(ast.parse(expression, mode="eval").body))


@af.reward
def exact(final_response: str, answer: str) -> float:
    return float(final_response.strip() == answer)


agent = af.Agent(tools=[calculator], reward=exact, prompt="What is {question}?", max_turns=4, max_tokens=64)
