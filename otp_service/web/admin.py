"""What pages of the admin share, and who may log in to it."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.core.paginator import Paginator
from django.db.models import Manager, Model, Q
from django.forms import BoundField, Field, ModelForm, MultipleHiddenInput, MultiWidget
from django.http import HttpRequest, QueryDict
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm


class RemembersWhatItShowed(ModelForm):  # type: ignore[type-arg]  # generic in the stubs only
    """A form of a row that others may change while it is open.

    What it showed is sent with it (`initial-` fields). What the person left as it was is not written: it stays as it
    is now, whoever changed it meanwhile. What both changed is refused once, with the present value: to save again is
    to put one's own in its place. Where nothing says what was shown, what is sent is compared with the row as now.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            field.show_hidden_initial = self.instance.pk is not None and self._is_remembered(name, field)

    def _is_remembered(self, name: str, field: Field) -> bool:
        hidden = field.hidden_widget()
        # Django does not repeat what was shown in several inputs, when a form comes back with a fault.
        if isinstance(hidden, MultiWidget) or field.disabled:
            return False
        # Of a list that was shown empty nothing is sent.
        sent = not hidden.value_omitted_from_data(self.data, self.files, self[name].html_initial_name)
        return not self.is_bound or sent or isinstance(hidden, MultipleHiddenInput)

    @cached_property
    def changed_data(self) -> list[str]:
        """What the person changed, and is not so by now."""
        return [name for name in super().changed_data if _differs(self[name], self[name].data)]

    def _post_clean(self) -> None:
        if self.instance.pk is not None:
            for name in self.changed_data:
                self._refuse_if_both_changed(name)
            # What nobody edited is neither checked nor written as it was.
            for name in self.cleaned_data.keys() - set(self.changed_data):
                del self.cleaned_data[name]
        super()._post_clean()  # type: ignore[misc]  # the stubs do not know it

    def _refuse_if_both_changed(self, name: str) -> None:
        bound = self[name]
        if not bound.field.show_hidden_initial or name in self.errors or not _differs(bound, _shown(bound)):
            return
        now = getattr(self.instance, name)
        text = ", ".join(map(str, now.all())) if isinstance(now, Manager) else now
        self.add_error(
            name, f"Somebody changed this meanwhile. It is now: {text}. Save again to put yours in its place."
        )
        self._show_as_now(bound)

    def _show_as_now(self, bound: BoundField) -> None:
        """What the form shows next is the row as it is now."""
        values = bound.field.prepare_value(bound.initial)
        data = cast("QueryDict", self.data).copy()
        if isinstance(bound.field.hidden_widget(), MultipleHiddenInput):
            data.setlist(bound.html_initial_name, values)
        else:
            data[bound.html_initial_name] = "" if values is None else str(values)
        self.data = data


def _shown(bound: BoundField) -> Any:
    """What the page that was sent had shown of a field, as the browser sends it."""
    form = bound.form
    return bound.field.hidden_widget().value_from_datadict(form.data, form.files, bound.html_initial_name)


def _differs(bound: BoundField, sent: Any) -> bool:
    """Whether something that was sent is another value than the row has now."""
    return bound.field.has_changed(bound.initial, sent)


class WritesOnlyEdits(ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """Saves what was edited: the rest of the row may have moved on since the form was shown.

    An address may ask about the fields of `list_filter` and `asked_about` only: else a column that is not
    shown could be guessed at, one condition at a time.
    """

    asked_about: tuple[str, ...] = ()

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm[Any]]:
        form: type[ModelForm[Any]] = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (RemembersWhatItShowed, form), {})

    def save_model(self, request: HttpRequest, obj: Any, form: ModelForm[Any], change: bool) -> None:
        obj.save(update_fields=form.changed_data if change else None)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        filters = map(_asks_about, self.get_list_filter(request))
        allowed = [*filters, *self.asked_about, self.date_hierarchy]
        return lookup.partition("__")[0] in allowed and bool(super().lookup_allowed(lookup, value, request))


class NeverDeleted(WritesOnlyEdits):
    """Rows that others refer to, and that stay."""

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class BoundedPaginator(Paginator):  # type: ignore[type-arg]  # generic in the stubs only
    """Counts no further than MOST: counting millions of rows costs more than the page. Older rows are searched for."""

    MOST = 10_000

    @cached_property
    def count(self) -> int:
        return int(self.object_list[: self.MOST].count())  # type: ignore[attr-defined]  # a queryset


class ReadOnly(NeverDeleted):
    """What the service itself writes: shown, found and filtered, never changed."""

    show_full_result_count = False
    paginator = BoundedPaginator

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class ReadOnlyInline(TabularInline):  # type: ignore[misc]  # unfold has no types
    """Rows that belong to the one on the page: shown, never changed."""

    extra = 0
    can_delete = False
    hide_title = True

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def _asks_about(item: Any) -> Any:
    """What an item of `list_filter` asks about: a field, the field of a pair, or its own parameter."""
    return item[0] if isinstance(item, (tuple, list)) else getattr(item, "parameter_name", item)


def page(
    model_admin: ModelAdmin, request: HttpRequest, template: str, *, title: str, status: int = 200, **context: Any
) -> TemplateResponse:
    """A page of its own inside the admin's frame. As every answer of the admin it is `no-store`."""
    request.current_app = model_admin.admin_site.name
    frame = model_admin.admin_site.each_context(request) | {"opts": model_admin.opts, "media": model_admin.media}
    return TemplateResponse(request, template, frame | {"title": title} | context, status=status)


_WHAT_THEY_MAY = ("is_staff", "is_superuser", "groups", "user_permissions")

for _model in (User, Group):
    admin.site.unregister(_model)


@admin.register(User)
class StaffAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]  # unfold has no types
    """Who may log in, and what they may see and do.

    Only superusers say what somebody may do. Others edit, remove and give passwords to those who may do no more than
    they themselves: else they could log in as somebody who may.
    """

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        fields = (*super().get_readonly_fields(request, obj), "last_login", "date_joined")
        return fields if request.user.is_superuser else (*fields, *_WHAT_THEY_MAY)

    def get_form(
        self, request: HttpRequest, obj: User | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm[Any]]:
        form: type[ModelForm[Any]] = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (RemembersWhatItShowed, form), {}) if change else form

    def save_model(self, request: HttpRequest, obj: User, form: ModelForm[User], change: bool) -> None:
        edited = [name for name in form.changed_data if name not in {"groups", "user_permissions"}]
        obj.save(update_fields=edited if change else None)

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return bool(super().has_change_permission(request, obj)) and _may_manage(request.user, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return bool(super().has_delete_permission(request, obj)) and _may_manage(request.user, obj)


def _may_manage(person: User | AnonymousUser, other: User | None) -> bool:
    if other is None or person.is_superuser:
        return True
    return not other.is_superuser and _permissions(other) <= _permissions(person)


def _permissions(person: User | AnonymousUser) -> frozenset[int]:
    """By row id: their own and their groups', also while they are not active."""
    held = Permission.objects.filter(Q(user=person.pk) | Q(group__user=person.pk))
    return frozenset(held.values_list("pk", flat=True))


@admin.register(Group)
class StaffGroupAdmin(DjangoGroupAdmin, ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """Permissions that several of them share: for superusers to change. Not to be taken for groups of servers."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return request.user.is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return request.user.is_superuser
