import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.DoubleStream;

public class Heights {
    public static void main(String[] args) throws Exception {
        List<String> lines = Files.readAllLines(Path.of(args[0], "participants.tsv"));
        int column = Arrays.asList(lines.get(0).split("\t")).indexOf("Height");
        double mean = lines.subList(1, lines.size()).parallelStream()
            .map(line -> line.split("\t")[column])
            .filter(text -> !text.equals("n/a"))
            .mapToDouble(Double::parseDouble).average().orElse(Double.NaN);
        Files.createDirectories(Path.of(args[1]));
        Files.writeString(Path.of(args[1], "results.tsv"), "measure\tmean\nheight\t" + mean + "\n");
    }
}
