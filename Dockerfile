# docker build -t continuation .
FROM python:3.13-slim

COPY pyproject.toml README.md LICENSE /src/
COPY continuation /src/continuation
COPY providers /src/providers
RUN pip install --no-cache-dir '/src[gateway,postgres]' && rm -r /src

USER nobody
EXPOSE 8787
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=2s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8787/readyz')"]
ENTRYPOINT ["continuation", "serve", "--host", "0.0.0.0", "--config", "/etc/continuation/continuation.toml"]
