import pytest
from django.test import Client


@pytest.mark.django_db
def test_p():
    for m in ["PUT", "POST", "OPTIONS", "DELETE"]:
        a = Client(enforce_csrf_checks=True, raise_request_exception=False).generic(m, "/api/docs/", b"")
        print(m, a.status_code, a.headers.get("Content-Type"), a.content[:80])
