"""How addresses hold values."""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import UUIDConverter

#: The converter's name, in routes and in the OpenAPI document's settings.
ANY_CASE_UUID = "any_case_uuid"


class AnyCaseUUIDConverter(UUIDConverter):
    """A UUID in lower or upper case, as other systems write it; our own addresses are in lower case."""

    regex = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


register_converter(AnyCaseUUIDConverter, ANY_CASE_UUID)
