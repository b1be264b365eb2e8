"""The product's addresses, and the bare view that they are measured against."""

from __future__ import annotations

from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt


@csrf_exempt
def bare(request: HttpRequest) -> HttpResponse:
    """Insert one row."""
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO bench_bare (body) VALUES (%s) RETURNING id", [request.body.decode()])
        (row_id,) = cursor.fetchone()
    return JsonResponse({"id": row_id})


urlpatterns = [path("bench/bare/", bare), path("", include("otp_service.urls"))]
