"""Servers that a person chose on the list or on a server's page, on their way through a page that asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse

from servers.admin.forms import ChosenForm
from servers.models import Server


class NothingChosen(Exception):
    """There is nothing to ask about; the sentence says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Chosen:
    """Ids of servers that there are, and where the person came from."""

    ids: Sequence[int]
    from_page: bool = False  # a server's own page; else the list
    filters: str = ""  # of the list, as in its address

    @property
    def ids_text(self) -> str:
        """As the form's one field holds them."""
        return ",".join(map(str, self.ids))

    @property
    def back_address(self) -> str:
        """Where the person came from."""
        if self.from_page and len(self.ids) == 1:
            return reverse("admin:servers_server_change", args=[self.ids[0]])
        # Read and written anew: whatever was posted, it is a query of our list and nothing else.
        query = QueryDict(self.filters).urlencode()
        return reverse("admin:servers_server_changelist") + (f"?{query}" if query else "")

    @classmethod
    def of_list(cls, request: HttpRequest, servers: QuerySet[Server]) -> Chosen:
        """What an action of the list is given: the rows that are ticked, or all of every page."""
        return cls(list(servers.order_by("pk").values_list("pk", flat=True)), filters=request.GET.urlencode())

    def servers(self) -> list[Server]:
        """In the order in which people read them."""
        return list(Server.objects.filter(pk__in=self.ids).select_related("host").order_by("region", "unit"))


def chosen_in(request: HttpRequest) -> Chosen:
    """What a page's form or a link to it names. Raises NothingChosen; servers that are not there are left out."""
    given = request.POST if request.method == "POST" else request.GET
    form = ChosenForm(given)
    if not form.is_valid():
        raise NothingChosen(" ".join(str(sentence) for errors in form.errors.values() for sentence in errors))
    ids = list(Server.objects.filter(pk__in=form.cleaned_data["ids"]).order_by("pk").values_list("pk", flat=True))
    if not ids:
        raise NothingChosen("None of these servers is there any more: choose them on the list again.")
    return Chosen(ids, from_page=given.get("from") == "page", filters=given.get("filters", ""))


def back(chosen: Chosen | None = None) -> HttpResponse:
    """To where the person came from."""
    return HttpResponseRedirect(chosen.back_address if chosen else reverse("admin:servers_server_changelist"))
