import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Java's HttpClient: {@code java Client.java BASE PROTOCOL CA} (http/1.1, h2 or h2c-upgrade; {@code -} without TLS). */
class Client {
    static final String TOKEN = "7", STALE = "6";
    static final int REQUESTS = 50;

    final String base;
    final HttpClient.Version version;
    final HttpClient client;
    boolean failed;

    Client(String base, String protocol, String authority) throws Exception {
        this.base = base;
        // Without TLS this client offers an upgrade, which the gateway does not take.
        version = protocol.equals("h2") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1;
        var asked = protocol.equals("http/1.1") ? HttpClient.Version.HTTP_1_1 : HttpClient.Version.HTTP_2;
        var builder = HttpClient.newBuilder().version(asked).connectTimeout(Duration.ofSeconds(30));
        client = (authority.equals("-") ? builder : builder.sslContext(trusting(authority))).build();
    }

    static SSLContext trusting(String authority) throws Exception {
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var pem = Files.newInputStream(Path.of(authority))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    HttpResponse<byte[]> ask(HttpRequest.Builder request) throws Exception {
        var response = client.send(request.timeout(Duration.ofSeconds(60)).build(), BodyHandlers.ofByteArray());
        if (response.version() != version) throw new Exception("the version is " + response.version());
        return response;
    }

    HttpRequest.Builder post(String path, String token, BodyPublisher content) {
        var request = HttpRequest.newBuilder(URI.create(base + "/" + path)).POST(content);
        return token == null ? request : request.header("X-Fencing-Token", token);
    }

    static void answered(HttpResponse<byte[]> response, byte[] content) throws Exception {
        if (response.statusCode() != 200 || !Arrays.equals(response.body(), content)) {
            throw new Exception(response + ", " + response.body().length + " bytes that are not those sent");
        }
    }

    static String header(HttpResponse<?> response, String name) {
        return response.headers().firstValue(name).orElse("");
    }

    void echoes(byte[] content) throws Exception {
        answered(ask(post("write", TOKEN, BodyPublishers.ofByteArray(content))), content);
    }

    void expects(byte[] content) throws Exception {
        answered(ask(post("write", TOKEN, BodyPublishers.ofByteArray(content)).expectContinue(true)), content);
    }

    void sendsChunks(byte[] content) throws Exception {
        var stream = BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(content));
        var response = ask(post("write", TOKEN, stream));
        answered(response, content);
        if (!header(response, "X-Framing").equals("chunked")) throw new Exception(header(response, "X-Framing"));
    }

    void isRefused(String token, int status, String reason) throws Exception {
        for (int size : new int[] {1 << 10, 1 << 20}) refuses(new byte[size], token, status, reason);
    }

    void refuses(byte[] content, String token, int status, String reason) throws Exception {
        var response = ask(post("write", token, BodyPublishers.ofByteArray(content)));
        var isProblem = header(response, "Content-Type").equals("application/problem+json");
        if (response.statusCode() != status || !header(response, "X-Fencing-Reason").equals(reason) || !isProblem) {
            throw new Exception(response + " " + response.headers());
        }
    }

    void reuses() throws Exception {
        for (int sent = 0; sent < REQUESTS; sent++) {
            answered(ask(post("reuse", TOKEN, BodyPublishers.ofString("x"))), "x".getBytes());
        }
    }

    void downloads() throws Exception {
        var response = ask(HttpRequest.newBuilder(URI.create(base + "/download")));
        var digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(response.body()));
        if (response.body().length != 32 << 20 || !digest.equals(header(response, "X-Sha256"))) {
            throw new Exception(response + ", " + response.body().length + " bytes that are not the origin's");
        }
    }

    interface Check {
        void run() throws Exception;
    }

    void check(String name, Check check) {
        try {
            check.run();
            System.out.println("ok " + name);
        } catch (Exception error) {
            failed = true;
            System.out.println("FAILED " + name + ": " + error);
        }
    }

    public static void main(String[] words) throws Exception {
        var ledger = new Client(words[0], words[1], words[2]);
        var large = new byte[1 << 20];
        new SecureRandom().nextBytes(large);
        var small = Arrays.copyOf(large, 1024);
        ledger.check("small", () -> ledger.echoes(small));
        ledger.check("large", () -> ledger.echoes(large));
        if (words[1].equals("h2")) {
            System.out.println("SKIPPED expect: over HTTP/2 there is no 100 Continue, for which this client waits without end");
        } else {
            ledger.check("expect", () -> ledger.expects(large));
        }
        ledger.check("chunked", () -> ledger.sendsChunks(large));
        ledger.check("stale", () -> ledger.isRefused(STALE, 412, "stale"));
        ledger.check("missing", () -> ledger.isRefused(null, 428, "missing"));
        ledger.check("reuse", ledger::reuses);
        ledger.check("download", ledger::downloads);
        System.exit(ledger.failed ? 1 : 0);
    }
}
