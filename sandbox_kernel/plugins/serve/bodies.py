"""What requests carry, as types: by them it is read, checked, and described on our pages.

A null counts as not given. Of what is not as its type says, one mistake is told: a body may have a million of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Annotated, Any, Self, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from starlette.requests import Request

from ...core.codes import Code, UsageCode
from .codes import ServeCode
from .requests import Refusal, improper, json_of

R = TypeVar("R")


class RequestModel(BaseModel):
    """What a request carries."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict) and None in value.values():
            return {name: one for name, one in value.items() if one is not None}
        return value

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return what some fields say. Raises `Refusal`."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            name = ".".join(str(part)[:100] for part in first["loc"])
            raise Refusal(400, cls.code_of(name), f"{name}: {first['msg'].removeprefix('Value error, ')}") from None

    @classmethod
    def code_of(cls, name: str) -> Code:
        """Return the code of a mistake in a field."""
        return UsageCode.WRONG_ARGUMENT


class Body(RequestModel):
    """An object of JSON, which is the body of a request."""


class Query(RequestModel):
    """What an address says behind its path."""

    model_config = ConfigDict(strict=False)

    @classmethod
    def in_address(cls, request: Request) -> Self:
        """Return what an address says. Raises `Refusal`."""
        found: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            values = [one for one in request.query_params.getlist(name) if one.lower() != "null"]
            if field.annotation == list[str]:
                found[name] = values
            elif len(values) > 1:
                raise improper(name, "is given once, in the address")
            elif values and (values[0] or field.annotation is str):
                found[name] = values[0]
        return cls.of(found)


def reading(handler: Callable[..., Awaitable[R]]) -> Callable[..., Awaitable[R]]:
    """Have a handler take what its request carries: each argument whose type is a `RequestModel`, behind all others.

    Its first argument is the request, or has it.
    """
    kinds = [
        kind for kind in get_type_hints(handler).values() if isinstance(kind, type) and issubclass(kind, RequestModel)
    ]

    @wraps(handler)
    async def read(asked: Any, *more: Any) -> R:
        request = asked if isinstance(asked, Request) else asked.request
        given = [
            kind.in_address(request) if issubclass(kind, Query) else kind.of(await json_of(request)) for kind in kinds
        ]
        return await handler(asked, *more, *given)

    return described(read, *kinds)


def described(handler: R, *kinds: type[RequestModel], media: str = "application/json") -> R:
    """Note for our pages what a handler takes."""
    vars(handler).update(takes=kinds, media=media)
    return handler


# --- fields ---


def _all_texts(value: Any) -> Any:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise ValueError("Input should map text to text")
    return value


def _not_offered(value: Any, info: ValidationInfo) -> Any:
    if value and value != {"enabled": False}:
        words = f"This server does not offer {to_camel(info.field_name or '')}"
        raise Refusal(400, ServeCode.NOT_OFFERED, words)
    return value


def _with_memory(value: bool) -> bool:
    if not value:
        words = "This server does not offer memory: what it keeps of a sandbox has it"
        raise Refusal(400, ServeCode.NOT_OFFERED, words)
    return value


TextList = Annotated[list[str], Field(fail_fast=True)]
Texts = Annotated[
    dict[str, str],
    PlainValidator(_all_texts),  # which ends at the first mistake, and copies nothing
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]
Seconds = Annotated[float, Field(ge=0)]
NotOffered = Annotated[Any, BeforeValidator(_not_offered)]
"""A field that asks for something which the server has not, unless it says nothing."""
WithMemory = Annotated[bool, AfterValidator(_with_memory)]
"""A field by which a client may ask that memory is not kept, which is not offered."""
