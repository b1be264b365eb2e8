"""The client API of campaigns: upload one, follow it, pause, resume and cancel it."""

from __future__ import annotations

import csv
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from django.http import Http404, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.http import parse_header_parameters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.exceptions import ErrorDetail, UnsupportedMediaType, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from otp_service.core.clock import utc_now
from otp_service.core.errors import ServiceError
from otp_service.messages import campaign_lines, campaign_load, campaigns
from otp_service.messages.api import MAX_IDEMPOTENCY_KEY, REPLAYED_HEADER, ClientView, idempotency_key
from otp_service.messages.campaign_lines import Lines, Record
from otp_service.messages.campaign_rows import FIELDS
from otp_service.messages.campaign_serializers import (
    CampaignListSerializer,
    CampaignPageSerializer,
    CampaignQuerySerializer,
    CampaignSerializer,
)
from otp_service.messages.campaigns import Change, NewCampaign
from otp_service.messages.models import Campaign, CampaignRefusal
from otp_service.web.authentication import caller
from otp_service.web.openapi import problems
from otp_service.web.pagination import page
from otp_service.web.query_parameters import query_parameters

NDJSON, CSV = "application/x-ndjson", "text/csv"
_FORMS = {NDJSON: Campaign.Form.NDJSON, CSV: Campaign.Form.CSV}
_REFUSALS_READ = 2_000  # at once
_NEEDED = ("to", "text")
_CAMPAIGN_QUERY = CampaignQuerySerializer()
_LIST_QUERY = CampaignListSerializer()

_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": MAX_IDEMPOTENCY_KEY, "pattern": "^[ -~]*$"},
    OpenApiParameter.HEADER,
    required=True,
    description=(
        "One campaign for each key. The same upload again goes on where the earlier one ended, or adds nothing; "
        "another one is refused with 422."
    ),
)
_REPLAYED = OpenApiParameter(
    REPLAYED_HEADER,
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    response=[202],
    enum=["true"],
    description="The upload was whole before; nothing was added now.",
)
_LOCATION = OpenApiParameter("Location", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[202])
#: Lines have no schema: one that is not as told is refused for itself.
_BODIES = {
    NDJSON: {
        "description": "A JSON object a line, with the fields of a message that is posted alone, but for `lane` and "
        "`supersede_key`."
    },
    CSV: {"description": "A line of column names, `to`, `text` and any other field; then a message a line."},
}
_EXAMPLES = [
    OpenApiExample(
        "NDJSON",
        '{"to": "+34600000000", "text": "Everything must go", "reference": "autumn-1"}\n',
        media_type=NDJSON,
        request_only=True,
    ),
    OpenApiExample(
        "CSV", "to,text,reference\n+34600000000,Everything must go,autumn-1\n", media_type=CSV, request_only=True
    ),
]


#: Uploads that a web process reads at once: each takes a thread for as long as it lasts, and codes come in beside it.
MOST_UPLOADS = 2
_uploads = threading.BoundedSemaphore(MOST_UPLOADS)


class TooManyUploads(ServiceError):
    """Others are being read."""

    status = 503
    code = "too_many_uploads"
    title = "The service is busy"

    def __init__(self) -> None:
        super().__init__("Other uploads are being read: send it again later, with the same key.", retry_after_s=30)


@contextmanager
def _one_of_few() -> Iterator[None]:
    """Raises TooManyUploads at once: nobody waits in a thread."""
    if not _uploads.acquire(blocking=False):
        raise TooManyUploads
    try:
        yield
    finally:
        _uploads.release()


@dataclass(frozen=True, slots=True)
class _Upload:
    form: str
    stream: IO[bytes]


class _UploadParser(BaseParser):
    """Hands the body on unread: it may be larger than memory."""

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        _refuse_other_encodings(media_type or "", (parser_context or {})["request"])
        return _Upload(_FORMS[self.media_type], stream)


def _refuse_other_encodings(media_type: str, request: Request) -> None:
    """Lines are UTF-8, as they are: read otherwise they would all be refused, and the key used up."""
    charset = parse_header_parameters(media_type)[1].get("charset", "")
    if charset.lower() not in {"", "utf-8", "utf8"} or "*" in media_type:
        raise UnsupportedMediaType(media_type)
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMediaType(
            encoding, f"Content-Encoding {encoding[:32]!r} is not read: send the lines as they are."
        )


class NDJSONParser(_UploadParser):
    """A JSON object a line."""

    media_type = NDJSON


class CSVParser(_UploadParser):
    """Comma-separated values under a header."""

    media_type = CSV


class CampaignsView(ClientView):
    """All campaigns of the calling client."""

    parser_classes = [NDJSONParser, CSVParser]

    @extend_schema(
        operation_id="post_campaign",
        summary="Upload a campaign",
        request=_BODIES,
        responses={202: CampaignSerializer, **problems(400, 409, 413, 415, 422)},
        parameters=[CampaignQuerySerializer, _KEY, _REPLAYED, _LOCATION],
        examples=_EXAMPLES,
        tags=["campaigns"],
    )
    def post(self, request: Request) -> Response:
        """Takes in promotional messages, one a line, with the fields of one that is posted alone.

        There is no `lane` and no `supersede_key`.
        Lines that are wrong are refused one by one. A `reference` may stand once in a campaign. Nothing is sent before
        the whole upload is stored. Cut off, it is gone on with by the same upload, with the same key.
        """
        asked, lines, records = _upload(request)
        with _one_of_few():
            campaign = campaigns.begin(caller(request).client_id, asked, lines, now=utc_now())
            is_loading = campaign.loaded_at is None
            if is_loading:  # refused if it was cancelled meanwhile
                campaign_load.load(campaign, lines, records, now=utc_now())
                campaigns.finish(campaign, lines, now=utc_now())
        told = _told(Campaign.objects.get(pk=campaign.pk))
        headers = {"Location": told["links"]["self"]} | ({} if is_loading else {REPLAYED_HEADER: "true"})
        return Response(told, status=202, headers=headers)

    @extend_schema(
        operation_id="list_campaigns",
        summary="List campaigns",
        parameters=[CampaignListSerializer],
        responses={200: CampaignPageSerializer, **problems(400)},
        tags=["campaigns"],
    )
    def get(self, request: Request) -> Response:
        """Lists the client's campaigns, newest first."""
        query = _LIST_QUERY.run_validation(query_parameters(request))
        states = {"state": query["state"]} if "state" in query else {}
        found = Campaign.objects.filter(client_id=caller(request).client_id, **states)
        rows, next_cursor = page(found, cursor=query.get("cursor"), limit=query["limit"])
        return Response({"results": _all_told(rows), "next_cursor": next_cursor})


class CampaignView(ClientView):
    """One campaign."""

    @extend_schema(
        operation_id="get_campaign",
        summary="Follow a campaign",
        responses={200: CampaignSerializer, **problems(404)},
        tags=["campaigns"],
    )
    def get(self, request: Request, campaign_uuid: uuid.UUID) -> Response:
        """Says how far a campaign is."""
        return Response(_told(_own(request, campaign_uuid)))


class _ChangeView(ClientView):
    """Something that is asked of a campaign. To ask again changes nothing."""

    asked: Change

    def _change(self, request: Request, campaign_uuid: uuid.UUID) -> Response:
        own = Campaign.objects.filter(client_id=caller(request).client_id, uuid=campaign_uuid)
        try:
            campaigns.change(own, self.asked, now=utc_now(), by="client")
        except Campaign.DoesNotExist:
            raise Http404 from None
        return Response(_told(own.get()))


class PauseView(_ChangeView):
    """The pause of a campaign."""

    asked = Change.PAUSE

    @extend_schema(
        operation_id="pause_campaign",
        summary="Pause a campaign",
        request=None,
        responses={200: CampaignSerializer, **problems(404, 409)},
        tags=["campaigns"],
    )
    def post(self, request: Request, campaign_uuid: uuid.UUID) -> Response:
        """Sends nothing more of it until it is resumed. One that is loading will be paused when it is whole."""
        return self._change(request, campaign_uuid)


class ResumeView(_ChangeView):
    """The end of a pause."""

    asked = Change.RESUME

    @extend_schema(
        operation_id="resume_campaign",
        summary="Resume a campaign",
        request=None,
        responses={200: CampaignSerializer, **problems(404, 409)},
        tags=["campaigns"],
    )
    def post(self, request: Request, campaign_uuid: uuid.UUID) -> Response:
        """Goes on with it. One that is loading will start when it is whole."""
        return self._change(request, campaign_uuid)


class CancelCampaignView(_ChangeView):
    """The withdrawal of a campaign."""

    asked = Change.CANCEL

    @extend_schema(
        operation_id="cancel_campaign",
        summary="Cancel a campaign",
        request=None,
        responses={200: CampaignSerializer, **problems(404, 409)},
        tags=["campaigns"],
    )
    def post(self, request: Request, campaign_uuid: uuid.UUID) -> Response:
        """Withdraws for good what has not been handed over: none of it is, once this has been answered."""
        return self._change(request, campaign_uuid)


class CampaignErrorsView(ClientView):
    """What was wrong with an upload."""

    @extend_schema(
        operation_id="get_campaign_errors",
        summary="Download the lines that were refused",
        responses={(200, CSV): OpenApiTypes.STR, **problems(404)},
        tags=["campaigns"],
    )
    def get(self, request: Request, campaign_uuid: uuid.UUID) -> HttpResponseBase:
        """Names each line that was refused, the field, a code, and what to do: the first 100,000 of them, as CSV."""
        campaign = _own(request, campaign_uuid)
        answer = StreamingHttpResponse(_report(campaign), content_type=f"{CSV}; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="campaign-{campaign.uuid}-errors.csv"'
        return answer


# --- uploads -------------------------------------------------------------------------------------------------


def _upload(request: Request) -> tuple[NewCampaign, Lines, Iterator[Record]]:
    """What a client wants to begin, and its lines. Raises ValidationError for what is wrong with all of it."""
    query = _CAMPAIGN_QUERY.run_validation(query_parameters(request))
    key = idempotency_key(request)
    if not key:
        raise ValidationError(
            {"Idempotency-Key": ErrorDetail("Send one: 1 to 255 characters of your own.", "required")}
        )
    body: object = request.data
    if not isinstance(body, _Upload):  # what is empty is not parsed
        raise ValidationError("Send at least one line.", code="empty")
    asked = NewCampaign(key, body.form, query["name"], query["weight"], query["start"] == "true")
    lines = Lines(body.stream, seed=asked.seed)
    if body.form == Campaign.Form.NDJSON:
        return asked, lines, campaign_lines.ndjson(lines)
    return asked, lines, campaign_lines.csv_records(lines, _header(lines))


def _header(lines: Lines) -> list[str]:
    header = campaign_lines.csv_header(lines)
    unknown = [name for name in header if name not in FIELDS]
    missing = [name for name in _NEEDED if name not in header]
    if unknown or missing or len(set(header)) < len(header):
        raise ValidationError(
            f"Begin with a line of column names, each once: to, text, and any of {', '.join(FIELDS[2:])}.",
            code="bad_header",
        )
    return header


# --- answers -------------------------------------------------------------------------------------------------


def _own(request: Request, campaign_uuid: uuid.UUID) -> Campaign:
    try:
        return Campaign.objects.get(client_id=caller(request).client_id, uuid=campaign_uuid)
    except Campaign.DoesNotExist:
        raise Http404 from None


def _told(campaign: Campaign) -> dict[str, Any]:
    return _all_told([campaign])[0]


def _all_told(found: Iterable[Campaign]) -> list[dict[str, Any]]:
    rows = list(found)
    counts = campaigns.counts(rows)
    for row in rows:
        row.messages = counts[row.pk]  # type: ignore[attr-defined]  # for the serializer
        row.links = {  # type: ignore[attr-defined]  # as above
            "self": reverse("campaign", args=[row.uuid]),
            "errors": reverse("campaign-errors", args=[row.uuid]),
        }
    return list(CampaignSerializer(rows, many=True).data)


class _Echo:
    """A file whose lines are handed on as they are written."""

    def write(self, text: str) -> str:
        return text


def _report(campaign: Campaign) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow(["line", "field", "code", "detail"])
    last = 0
    while True:
        rows = CampaignRefusal.objects.filter(campaign=campaign, line__gt=last).order_by("line")[:_REFUSALS_READ]
        some = list(rows.values_list("line", "field", "code", "detail"))
        if not some:
            return
        yield from map(writer.writerow, some)
        last = some[-1][0]
