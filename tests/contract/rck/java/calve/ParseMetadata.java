package calve;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.view.ViewMetadata;
import org.apache.iceberg.view.ViewMetadataParser;

/**
 * Reads every document of a folder with Iceberg's own parsers and writes what it understood into another folder.
 *
 * <p>Arguments: folder in, folder out. Names end in {@code .table.json} or {@code .view.json}. Prints one line for
 * each document that Iceberg refuses, then how many it read. Ends with 1 if it refused any.
 */
public final class ParseMetadata {
  private ParseMetadata() {}

  public static void main(String[] arguments) throws IOException {
    Path in = Path.of(arguments[0]);
    Path out = Path.of(arguments[1]);
    int refused = 0;
    List<Path> documents = documents(in);
    for (Path document : documents) {
      String name = document.getFileName().toString();
      try {
        Files.writeString(out.resolve(name), written(name, Files.readString(document)));
      } catch (RuntimeException e) {
        refused += 1;
        System.out.println("REFUSED " + name + ": " + e);
      }
    }
    System.out.println("READ " + (documents.size() - refused));
    System.exit(refused == 0 ? 0 : 1);
  }

  private static String written(String name, String json) {
    if (name.endsWith(".view.json")) {
      ViewMetadata view = ViewMetadataParser.fromJson(json);
      return ViewMetadataParser.toJson(view);
    }
    TableMetadata table = TableMetadataParser.fromJson(json);
    // The parser reads snapshots only when they are asked for.
    table.snapshots();
    return TableMetadataParser.toJson(table);
  }

  private static List<Path> documents(Path folder) throws IOException {
    List<Path> found = new ArrayList<>();
    try (DirectoryStream<Path> entries = Files.newDirectoryStream(folder, "*.json")) {
      entries.forEach(found::add);
    }
    Collections.sort(found);
    return found;
  }
}
