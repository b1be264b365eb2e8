# One image for every process; docker-compose.yml says which command each of them runs.

FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /app
# Wheels only, each of a hash that the lock file names: nothing is compiled, nothing runs at installation.
COPY requirements.lock ./
RUN python -m venv --without-pip /venv \
 && pip --python /venv/bin/python install --require-hashes --only-binary :all: --requirement requirements.lock
COPY manage.py ./
COPY otp_service ./otp_service
COPY servers ./servers
COPY webhooks ./webhooks
COPY scheduler ./scheduler
# Settings refuse to start without secrets; these are of this command alone, and open nothing.
RUN DJANGO_SECRET_KEY=for-collectstatic-only \
    FIELD_ENCRYPTION_KEYS="k0:$(head -c 32 /dev/zero | base64)" \
    HASH_KEYS="h0:$(head -c 32 /dev/zero | base64)" \
    DATABASE_URL=postgres://nobody@localhost/none \
    REDIS_URL=redis://localhost/0 \
    /venv/bin/python manage.py collectstatic --no-input --verbosity 0 \
 && python -m compileall -q --invalidation-mode unchecked-hash otp_service servers webhooks scheduler

FROM python:3.11-slim
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 DJANGO_SETTINGS_MODULE=otp_service.settings
# A number, so that an orchestrator can see that it is not root. The code is root's: the process cannot change it.
RUN groupadd --gid 10001 otp && useradd --uid 10001 --gid otp --no-create-home --home-dir /nonexistent otp
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
USER 10001:10001
EXPOSE 8000
CMD ["python", "-m", "otp_service.serve", "--listen", "0.0.0.0:8000"]
