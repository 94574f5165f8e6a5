"""Where every name of a Lua 5.1 text is declared and used: enough of the language's grammar to follow its scopes.

It judges no program: whether a text compiles, Redis says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.connection.lua_tokens import LuaSyntaxError, tokens_of

_BINARY = frozenset(("+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or"))
_BLOCK_ENDS = frozenset(("end", "else", "elseif", "until", ""))


class Block:
    """A stretch of statements with its locals. `function`: the block that is the body of the function around it."""

    def __init__(self, parent: Block | None, *, is_function: bool = False) -> None:
        self.parent = parent
        self.function: Block = self if is_function or parent is None else parent.function


@dataclass(frozen=True, eq=False, slots=True)
class Local:
    """One declared name. `hidden`: a parameter or the variable of a loop, which only its own block knows."""

    name: str
    line: int
    block: Block
    hidden: bool


@dataclass(frozen=True, slots=True)
class Use:
    """One name where it is read or assigned. `local` None: it is declared nowhere, so it is a global."""

    name: str
    line: int
    assigned: bool
    local: Local | None


@dataclass(slots=True)
class Names:
    """What a text declares and uses, in order; `statements`: for each line that begins one, the block it stands in;
    `most_locals`: how many locals of the outermost function are alive where most are."""

    locals: list[Local] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    statements: dict[int, Block] = field(default_factory=dict)
    most_locals: int = 0


def read_names(text: str) -> Names:
    """Follow the scopes of a whole text. Raises LuaSyntaxError."""
    reader = _Reader(tokens_of(text))
    reader.read_text()
    return reader.names


class _Reader:
    def __init__(self, tokens: list[tuple[str, str, int]]) -> None:
        self.tokens = tokens
        self.at = 0
        self.names = Names()
        self.scope: list[Local] = []

    @property
    def text(self) -> str:
        return self.tokens[self.at][1]

    @property
    def line(self) -> int:
        return self.tokens[self.at][2]

    def take(self, *wanted: str) -> bool:
        if self.text in wanted and self.tokens[self.at][0] != "value":
            self.at += 1
            return True
        return False

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            raise LuaSyntaxError(self.line, f"{wanted!r} is due, found {self.text!r}")

    def name(self) -> tuple[str, int]:
        kind, found, line = self.tokens[self.at]
        if kind != "name":
            raise LuaSyntaxError(line, f"a name is due, found {found!r}")
        self.at += 1
        return found, line

    def declare(self, block: Block, name: str, line: int, *, hidden: bool = False) -> None:
        local = Local(name, line, block, hidden)
        self.names.locals.append(local)
        self.scope.append(local)
        if block.function.parent is None:
            self.names.most_locals = max(self.names.most_locals, len(self.scope))

    def use(self, name: str, line: int, *, assigned: bool = False) -> None:
        local = next((each for each in reversed(self.scope) if each.name == name), None)
        self.names.uses.append(Use(name, line, assigned, local))

    def block_in(self, parent: Block, *, until: tuple[str, ...], variables: tuple[tuple[str, int], ...] = ()) -> None:
        """The statements of a block, whose end is taken too."""
        block, alive = Block(parent), len(self.scope)
        for name, line in variables:
            self.declare(block, name, line, hidden=True)
        self.statements(block)
        if until == ("until",):
            self.expect("until")
            self.expression(block)
        elif not self.take(*until):
            raise LuaSyntaxError(self.line, f"{' or '.join(until)} is due, found {self.text!r}")
        del self.scope[alive:]

    def function_body(self, around: Block, *, method: bool = False) -> None:
        alive, parameters = len(self.scope), list[tuple[str, int]]()
        block = Block(around, is_function=True)
        self.expect("(")
        while not self.take(")"):
            if not self.take("..."):
                parameters.append(self.name())
            self.take(",")
        if method:
            self.declare(block, "self", self.line, hidden=True)
        for name, line in parameters:
            self.declare(block, name, line, hidden=True)
        self.statements(block)
        self.expect("end")
        del self.scope[alive:]

    def read_text(self) -> None:
        self.statements(Block(None))
        if self.text:
            raise LuaSyntaxError(self.line, f"nothing is due, found {self.text!r}")

    def statements(self, block: Block) -> None:
        while self.text not in _BLOCK_ENDS or self.tokens[self.at][0] == "value":
            self.names.statements.setdefault(self.line, block)
            self.statement(block)
            self.take(";")

    def statement(self, block: Block) -> None:
        if self.take("local"):
            self.local_statement(block)
        elif self.take("if"):
            self.expression(block)
            self.expect("then")
            while True:
                self.block_in(block, until=("elseif", "else", "end"))
                ended = self.tokens[self.at - 1][1]
                if ended == "end":
                    break
                if ended == "elseif":
                    self.expression(block)
                    self.expect("then")
        elif self.take("while"):
            self.expression(block)
            self.expect("do")
            self.block_in(block, until=("end",))
        elif self.take("do"):
            self.block_in(block, until=("end",))
        elif self.take("for"):
            self.loop(block)
        elif self.take("repeat"):
            self.block_in(block, until=("until",))
        elif self.take("function"):
            self.named_function(block)
        elif self.take("return"):
            if self.text not in _BLOCK_ENDS and self.text != ";":
                self.expressions(block)
        elif not self.take("break"):
            self.assignment_or_call(block)

    def local_statement(self, block: Block) -> None:
        if self.take("function"):
            self.declare(block, *self.name())
            self.function_body(block)
            return
        names = [self.name()]
        while self.take(","):
            names.append(self.name())
        if self.take("="):
            self.expressions(block)
        for name, line in names:
            self.declare(block, name, line)

    def loop(self, block: Block) -> None:
        variables = [self.name()]
        while self.take(","):
            variables.append(self.name())
        if not self.take("=", "in"):
            raise LuaSyntaxError(self.line, f"'=' or 'in' is due, found {self.text!r}")
        self.expressions(block)
        self.expect("do")
        # Lua keeps three variables of its own for each loop.
        own = [("(for)", variables[0][1])] * 3
        self.block_in(block, until=("end",), variables=(*own, *variables))

    def named_function(self, block: Block) -> None:
        name, line = self.name()
        member, method = False, False
        while self.take(".", ":"):
            method = self.tokens[self.at - 1][1] == ":"
            member = True
            self.name()
        self.use(name, line, assigned=not member)
        self.function_body(block, method=method)

    def assignment_or_call(self, block: Block) -> None:
        # Whether a plain name is assigned is known behind it only.
        while True:
            start = self.at
            self.prefixed(block)
            plain = self.at == start + 1
            if plain and self.text in (",", "="):
                name, line = self.tokens[start][1], self.tokens[start][2]
                self.names.uses.pop()
                self.use(name, line, assigned=True)
            if not self.take(","):
                break
        if self.take("="):
            self.expressions(block)

    def expressions(self, block: Block) -> None:
        self.expression(block)
        while self.take(","):
            self.expression(block)

    def expression(self, block: Block) -> None:
        while True:
            while self.take("not", "-", "#"):
                pass
            self.operand(block)
            if self.tokens[self.at][0] == "value" or self.text not in _BINARY:
                return
            self.at += 1

    def operand(self, block: Block) -> None:
        if self.tokens[self.at][0] == "value" or self.text in ("nil", "true", "false", "..."):
            self.at += 1
        elif self.take("function"):
            self.function_body(block)
        elif self.text == "{":
            self.table(block)
        else:
            self.prefixed(block)

    def prefixed(self, block: Block) -> None:
        """A name or an expression in brackets, with its indexes and calls."""
        if self.take("("):
            self.expression(block)
            self.expect(")")
        else:
            self.use(*self.name())
        while True:
            if self.take("."):
                self.name()
            elif self.take("["):
                self.expression(block)
                self.expect("]")
            elif self.take(":"):
                self.name()
            elif self.take("("):
                if not self.take(")"):
                    self.expressions(block)
                    self.expect(")")
            elif self.text == "{":
                self.table(block)
            elif self.tokens[self.at][0] == "value" and self.text[0] in "'\"":
                self.at += 1
            else:
                return

    def table(self, block: Block) -> None:
        self.expect("{")
        while not self.take("}"):
            if self.take("["):
                self.expression(block)
                self.expect("]")
                self.expect("=")
            elif self.tokens[self.at][0] == "name" and self.tokens[self.at + 1][1:2] == ("=",):
                self.at += 2
            self.expression(block)
            self.take(",", ";")
