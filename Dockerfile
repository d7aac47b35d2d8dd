# The whole server in one image: Python, Java and the jars for Spark. Nothing is fetched when it runs.
#
#   docker build --tag calve .
#   docker run --publish 8181:8181 --volume calve:/data calve
#
# A container listens on all its addresses, so callers need tokens: CALVE_AUTH is "tokens" here.

FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN apt-get update \
    && apt-get install --yes --no-install-recommends maven openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
RUN python -m venv /opt/calve/venv
# What changes rarely comes first: the packages, then the jars, then our own code.
COPY requirements.txt ./
RUN /opt/calve/venv/bin/pip install --no-deps --requirement requirements.txt
COPY spark_jobs/__init__.py spark_jobs/download.py spark_jobs/jars.py spark_jobs/java.py spark_jobs/
RUN CALVE_JARS=/opt/calve/jars python -m spark_jobs.jars
COPY pyproject.toml README.md LICENSE ./
COPY calve calve
COPY catalog catalog
COPY ingest ingest
COPY maintenance maintenance
COPY query query
COPY spark_jobs spark_jobs
RUN /opt/calve/venv/bin/pip install --no-deps .

FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home calve \
    && install --directory --owner=calve --group=calve /data
COPY --from=build /opt/calve /opt/calve
ENV PATH=/opt/calve/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    CALVE_JARS=/opt/calve/jars \
    CALVE_HOME=/data \
    CALVE_HOST=0.0.0.0 \
    CALVE_PORT=8181 \
    CALVE_AUTH=tokens
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8181
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"CALVE_PORT\"]}/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "--", "calve"]
CMD ["serve"]
